package backup

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/wal"
)

// A replica consists of a base, which is a copy of the database file, and segments. Each segment has
// the commits after the previous segment (docs/adr/0053-replicating-the-embedded-database.md). The base
// and each segment are objects in the format of a backup.

// Names of the members and parts of a base or segment.
const (
	segmentMember = "segment.json"
	databasePart  = "database"
	logPart       = "log"
)

// segment is the description of a base or segment.
type segment struct {
	Format     int                `json:"format"`
	MadeBy     string             `json:"madeBy"`
	System     keyserver.SystemID `json:"systemId"`
	ServerName string             `json:"serverName"`
	KEK        KEK                `json:"keyEncryptionKey"`
	Generation string             `json:"generation"`
	Number     int64              `json:"number"` // 0: the base
	// Previous is the SHA-256 of the description and manifest of the previous segment. The manifest has the SHA-256 of
	// its parts.
	Previous []byte `json:"previous,omitempty"`
	// Until is the restore point of a segment: all commits that were acknowledged before this time are in this segment,
	// an earlier segment, or the base.
	Until time.Time `json:"until,omitzero"`
	// Header, From and To identify the frames of the write-ahead log in a segment. A base has only To, where its first
	// segment begins.
	Header []byte       `json:"header,omitempty"`
	From   wal.Position `json:"from"`
	To     wal.Position `json:"to"`
}

// untilTime is the time format in names of segments. The names sort in the order of the segments.
const untilTime = "20060102T150405.000Z"

var segmentForm = regexp.MustCompile(`^(replica-([0-9]{1,10})-([0-9]{8}T[0-9]{6}Z)-[0-9a-f]{8})-([0-9]{9})(?:-([0-9]{8}T[0-9]{6}\.[0-9]{3}Z))?\.age$`)

// generationForm matches the common name of a base and its segments for restore --backup.
var generationForm = regexp.MustCompile(`^replica-[0-9]{1,10}-[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}$`)

func generationName(system keyserver.SystemID, begun time.Time, id [4]byte) string {
	return fmt.Sprintf("replica-%d-%s-%x", system, begun.UTC().Format(nameTime), id)
}

func (s segment) name() string {
	if s.Number == 0 {
		return fmt.Sprintf("%s-%09d.age", s.Generation, s.Number)
	}
	return fmt.Sprintf("%s-%09d-%s.age", s.Generation, s.Number, s.Until.UTC().Format(untilTime))
}

// keptSegment describes a stored base or segment.
type keptSegment struct {
	object     string
	generation string
	system     keyserver.SystemID
	begun      time.Time // when the generation was begun
	number     int64
	until      time.Time
	size       int64
}

// segmentOf parses the name of a base or segment. It returns false for another name.
func segmentOf(name string) (k keptSegment, ok bool) {
	m := segmentForm.FindStringSubmatch(name)
	if m == nil {
		return k, false
	}
	system, err := strconv.ParseUint(m[2], 10, 32)
	if err != nil {
		return k, false
	}
	k = keptSegment{object: name, generation: m[1], system: keyserver.SystemID(system)}
	if k.begun, err = time.Parse(nameTime, m[3]); err != nil {
		return k, false
	}
	if k.number, err = strconv.ParseInt(m[4], 10, 64); err != nil || (k.number == 0) != (m[5] == "") {
		return k, false
	}
	if m[5] != "" {
		k.until, err = time.Parse(untilTime, m[5])
	}
	return k, err == nil
}

// eachSegment calls found with each base and segment, in the order of their names. It ignores other objects.
func (p Place) eachSegment(ctx context.Context, found func(keptSegment) error) error {
	return p.Each(ctx, func(o blobstore.Object) error {
		if !strings.HasPrefix(o.Name, "replica-") {
			return nil
		}
		k, ok := segmentOf(o.Name)
		if !ok {
			return nil
		}
		k.size = o.Size
		return found(k)
	})
}

// base writes a base: its description, the database file and the manifest.
func (w *writer) base(head segment, file io.Reader) error {
	if err := w.describe(segmentMember, head); err != nil {
		return err
	}
	if err := w.part(databasePart, func(to io.Writer) (int64, error) { return io.Copy(to, file) }); err != nil {
		return err
	}
	return w.describe(manifestMember, w.manifest)
}

func (w *writer) segment(head segment, c sqlite.Committed) error {
	if err := w.describe(segmentMember, head); err != nil {
		return err
	}
	if err := w.part(logPart, func(to io.Writer) (int64, error) {
		n := c.To.Frames - c.From.Frames
		if n == 0 {
			return 0, nil
		}
		if _, err := c.Frames.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
		copied, err := io.Copy(to, c.Frames)
		if err == nil && copied != n*c.Header.FrameSize() {
			err = sqlite.ErrLogMoved
		}
		return n, err
	}); err != nil {
		return err
	}
	if err := w.journal(c.Rows); err != nil {
		return err
	}
	return w.describe(manifestMember, w.manifest)
}
