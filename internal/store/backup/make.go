package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/snapshot"
)

// windowSize is the window of zstd in bytes. It limits the memory of writers and readers.
const windowSize = 1 << 20

// Store is the part of a database that a Maker needs.
type Store interface {
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
}

// Maker makes backups. Every field is needed.
type Maker struct {
	Store      Store
	System     keyserver.SystemID
	ServerName string
	// Key verifies the checkpoints of the key server. It identifies the key server to which a directory or bucket of
	// backups belongs.
	Key     string
	Version string
	KEK     func(ctx context.Context) keyserver.KEK
	Clock   func() time.Time
	// Rest is the ratio of pauses to work. The pauses keep the delay of requests to the key server small. 0 means no
	// pauses.
	Rest int
}

// Write writes a backup for an age recipient. If Write returns an error, the output is
// incomplete and cannot be restored. It returns OVERLOADED while another backup is made.
func (m *Maker) Write(ctx context.Context, recipient string, to io.Writer) error {
	return m.write(ctx, recipient, to, func() error { return nil })
}

// write is Write, but calls begun before it writes output. At that time, no other backup is being made.
func (m *Maker) write(ctx context.Context, recipient string, to io.Writer, begun func() error) (err error) {
	reader, err := ParseRecipient(recipient)
	if err != nil {
		return err
	}
	snapshot, err := m.Store.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	if err := begun(); err != nil {
		return err
	}
	return pack(to, reader, m.Clock(), resting(ctx, m.Clock, m.Rest), func(w *writer) error { return m.copy(ctx, snapshot, w) })
}

// pack writes a compressed and encrypted tar file with the members that fill writes.
func pack(to io.Writer, reader age.Recipient, at time.Time, rest func() error, fill func(*writer) error) error {
	encrypted, err := age.Encrypt(to, reader)
	if err != nil {
		return fmt.Errorf("encrypt: %w", err)
	}
	compressed, err := zstd.NewWriter(encrypted, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize))
	if err != nil {
		return err
	}
	w := &writer{tar: tar.NewWriter(compressed), at: at, rest: rest, digest: sha256.New()}
	if err := fill(w); err != nil {
		_ = compressed.Close() // the output is not used
		return err
	}
	return errors.Join(w.tar.Close(), compressed.Close(), encrypted.Close())
}

// maxRest is the maximum length of one pause.
const maxRest = 2 * time.Second

// resting returns a function to call after each member. That function pauses for the time since its last call ended,
// multiplied by the factor times, but at most for maxRest.
func resting(ctx context.Context, clock func() time.Time, times int) func() error {
	since := clock()
	return func() error {
		pause := min(time.Duration(times)*clock().Sub(since), maxRest)
		if pause > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
		since = clock()
		return nil
	}
}

func (m *Maker) copy(ctx context.Context, s *snapshot.Snapshot, w *writer) error {
	kek := m.KEK(ctx)
	if err := w.describe(headMember, Head{
		Format: format, MadeAt: w.at.UTC().Truncate(time.Second), MadeBy: m.Version, Schema: s.Schema, System: m.System, ServerName: m.ServerName,
		KEK: KEK{kek.Scheme, kek.Fingerprint}, First: s.Extent.First, Last: s.Last, Tree: treeOf(s.Tree), Tables: s.Tables,
	}); err != nil {
		return err
	}
	for _, t := range s.Tables {
		if err := w.part(t.Name, func(to io.Writer) (int64, error) { return s.Copy(ctx, t, to) }); err != nil {
			return err
		}
	}
	if err := w.journal(s.Tail); err != nil {
		return err
	}
	return w.describe(manifestMember, w.manifest)
}

type writer struct {
	tar      *tar.Writer
	at       time.Time
	manifest manifest
	digest   hash.Hash // over head and manifest; the manifest has the hashes of the parts

	rest   func() error
	name   string
	number int
	hash   hash.Hash
	size   int64
	held   []byte // content of the next member
	failed error  // error of Write; part returns it instead of the error of fill
}

func (w *writer) member(name string, content []byte) error {
	err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: w.at.Truncate(time.Second), Format: tar.FormatUSTAR})
	if err == nil {
		_, err = w.tar.Write(content)
	}
	return err
}

func (w *writer) describe(name string, what any) error {
	text, err := json.MarshalIndent(what, "", " ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	_, _ = w.digest.Write(text) // never fails
	return w.member(name, text)
}

func (w *writer) journal(rows []keyserver.AuditEntry) error {
	return w.part(journalPart, func(to io.Writer) (int64, error) {
		var record []byte
		for i := range rows {
			record = audit.AppendRecord(record[:0], &rows[i])
			if _, err := to.Write(record); err != nil {
				return 0, err
			}
		}
		return int64(len(rows)), nil
	})
}

// part writes the output of fill as members, and adds its size and hash to the manifest.
func (w *writer) part(name string, fill func(io.Writer) (int64, error)) error {
	w.name, w.number, w.hash, w.size, w.held = name, 0, sha256.New(), 0, w.held[:0]
	rows, err := fill(w)
	if w.failed != nil {
		return w.failed
	}
	if err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.manifest.Parts = append(w.manifest.Parts, Part{name, rows, w.size, w.hash.Sum(nil)})
	return nil
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && w.failed == nil {
		fits := min(len(p), memberSize-len(w.held))
		w.held = append(w.held, p[:fits]...)
		if p = p[fits:]; len(w.held) == memberSize {
			w.failed = w.flush()
		}
	}
	return n - len(p), w.failed
}

func (w *writer) flush() error {
	_, _ = w.hash.Write(w.held) // never fails
	w.size += int64(len(w.held))
	w.number++
	err := w.member(fmt.Sprintf("%s/%08d", w.name, w.number), w.held)
	w.held = w.held[:0]
	if err != nil {
		return err
	}
	return w.rest()
}

// decode parses a head or manifest. It rejects unknown fields and trailing data.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("there is data after it")
	}
	return nil
}

// decodeLoosely parses the known fields of a head or manifest.
func decodeLoosely(text []byte, into any) error { return json.Unmarshal(text, into) }
