// Package backup writes a database to an encrypted file, the backup, and creates a
// database from a backup. Only an age identity of the recipient decrypts a backup
// (docs/adr/0055-backups-are-rows.md).
//
// A backup is a tar file, compressed with zstd and encrypted with age. Its first member
// describes the backup. The tables follow, each in members of at most 128 KiB. The last
// member has the size and hash of each table.
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

const format = 1

// Members of the tar that are not tables.
const (
	headMember     = "head.json"
	manifestMember = "manifest.json"
	// journalPart has the audit rows that were durable only in a journal.
	journalPart = "journal"
)

const (
	// memberSize is the maximum size of a member in bytes. A member is buffered until its
	// size is known.
	memberSize = 1 << 17
	// maxDescription is the maximum size of a head or manifest.
	maxDescription = 4 << 20
	// maxJournal is the maximum size of journalPart. A journal has at most 8 MiB.
	maxJournal = 64 << 20
)

// ErrDamaged means that the bytes of a backup differ from the bytes that were written.
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

// KEK identifies a key-encryption key without its secret.
type KEK struct {
	Scheme      string `json:"scheme"`
	Fingerprint string `json:"fingerprint"`
}

// Tree is the state of the audit tree.
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

// Origin returns the name of the audit log in the checkpoint, or "" if there was no tree yet.
func (t Tree) Origin() string {
	name, _, _ := strings.Cut(t.Checkpoint, "\n")
	return name
}

// Signer returns the key that the checkpoint names for the log (NAME+HASH), or "" if there is none. It does not verify
// the signature.
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

// ParseRecipient parses a single age recipient.
func ParseRecipient(text string) (age.Recipient, error) {
	recipients, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(recipients) != 1 || strings.ContainsAny(text, "\r\n") {
		return nil, fault.New(fault.BadRequest, "recipient: not an age recipient; it must begin with age1 (age-keygen -y shows it)")
	}
	return recipients[0], nil
}
