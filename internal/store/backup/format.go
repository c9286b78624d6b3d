// Package backup writes an encrypted file of everything in a database, and makes a
// database from such a file. Only an age identity of the recipient opens it
// (docs/adr/0055-backups-are-rows.md).
//
// A backup is a tar, compressed with zstd and encrypted with age. Its first member
// describes the backup. The tables follow one after the other, each in members of at most
// 128 KiB. The last member has the size and hash of all of them.
package backup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
)

// format is the version of the format of a backup.
const format = 1

// Members of the tar that are not tables.
const (
	headMember     = "head.json"
	manifestMember = "manifest.json"
	// journalPart has the rows of the audit log that were durable in a journal only.
	journalPart = "journal"
)

const (
	// memberSize is the most bytes of a member, which are buffered until its size is
	// known.
	memberSize = 1 << 17
	// maxDescription bounds a head and a manifest.
	maxDescription = 4 << 20
	// maxJournal bounds the rows of a journal, which itself has at most 8 MiB.
	maxJournal = 64 << 20
)

// ErrDamaged is wrapped by errors about a backup that is not as it was written.
var ErrDamaged = errors.New("the backup is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Head describes a backup.
type Head struct {
	Format     int                `json:"format"`
	MadeAt     time.Time          `json:"madeAt"`
	MadeBy     string             `json:"madeBy"` // the version of the program
	Schema     int64              `json:"schema"`
	System     keyserver.SystemID `json:"systemId"`
	ServerName string             `json:"serverName"`
	// KEK is the key-encryption key that the restored database needs.
	KEK KEK `json:"keyEncryptionKey"`
	// First and Last are the first and last row of the audit log in the backup.
	First  int64            `json:"firstRow"`
	Last   int64            `json:"lastRow"`
	Tree   Tree             `json:"tree"`
	Tables []snapshot.Table `json:"tables"`
}

// KEK has the public facts about a key-encryption key.
type KEK struct {
	Scheme      string `json:"scheme"`
	Fingerprint string `json:"fingerprint"`
}

// Tree is the state of the tree over the audit log.
type Tree struct {
	Size       int64  `json:"size"`
	Root       []byte `json:"root"`
	Checkpoint string `json:"checkpoint"` // C2SP tlog-checkpoint
}

func treeOf(h audit.TreeHead) Tree {
	if h.Size == 0 && len(h.Checkpoint) == 0 {
		return Tree{}
	}
	return Tree{Size: h.Size, Root: h.Root[:], Checkpoint: string(h.Checkpoint)}
}

// Origin returns the name of the log, empty if there was no tree yet.
func (t Tree) Origin() string {
	name, _, _ := strings.Cut(t.Checkpoint, "\n")
	return name
}

// Signer returns the key of the log as the checkpoint names it (NAME+HASH), or "" if it
// names none. It does not verify the signature.
func (t Tree) Signer() string {
	_, signers, err := tree.Parse([]byte(t.Checkpoint))
	if err != nil {
		return ""
	}
	if at := slices.IndexFunc(signers, func(s string) bool { return strings.HasPrefix(s, t.Origin()+"+") }); at >= 0 {
		return signers[at]
	}
	return "" // signed by witnesses only
}

// manifest lists the parts of a backup.
type manifest struct {
	Parts []Part `json:"parts"`
}

// Part is a table, or the journal.
type Part struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`
	SHA256 []byte `json:"sha256"`
}

// ParseRecipient parses a recipient of age.
func ParseRecipient(text string) (age.Recipient, error) {
	recipients, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(recipients) != 1 || strings.ContainsAny(text, "\r\n") {
		return nil, fault.New(fault.BadRequest, "recipient: not an age recipient; it must begin with age1 (age-keygen -y shows it)")
	}
	return recipients[0], nil
}
