package backup

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
)

// KeepIn sets the destination of a schedule to an open object store.
func (s *Schedule) KeepIn(place *blobstore.Store) { s.place = Place{place} }

// Turn runs a pass, and what Run does after it.
func (s *Schedule) Turn(ctx context.Context) { s.pause(ctx, s.Pass(ctx)) }

// Begin runs the first step of Run.
func (s *Schedule) Begin() { s.begun = s.Clock() }

// Member is a member of the tar.
type Member struct {
	Name    string
	Content []byte
}

// Members unpacks a backup.
func Members(from io.Reader, identity age.Identity) ([]Member, error) {
	opened, err := age.Decrypt(from, identity)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewReader(opened)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var all []Member
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		all = append(all, Member{h.Name, content})
	}
}

// Assemble packs a backup from members.
func Assemble(to io.Writer, recipient age.Recipient, all []Member) error {
	encrypted, err := age.Encrypt(to, recipient)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(encrypted, zstd.WithWindowSize(windowSize))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, m := range all {
		if err := w.WriteHeader(&tar.Header{Name: m.Name, Mode: 0o600, Size: int64(len(m.Content)), Format: tar.FormatUSTAR}); err != nil {
			return err
		}
		if _, err := w.Write(m.Content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return encrypted.Close()
}

// Start runs the first step of Run.
func (r *Replicator) Start() {
	r.start()
}

// FoldAt sets the number of pages at which the log is copied into the database file.
func (r *Replicator) FoldAt(pages int64) { r.foldAt = pages }

// End runs the last step of Run.
func (r *Replicator) End() { r.end() }

// Turn runs a pass, and what Run does after it.
func (r *Replicator) Turn(ctx context.Context) error {
	err := r.Pass(ctx)
	r.pause(ctx, err)
	return err
}

// Making reports whether a base is being made.
func (r *Replicator) Making() bool { return r.making != nil }

// Current reports whether there is a base.
func (r *Replicator) Current() bool { return r.current != nil }

// Folds returns how often the log was copied into the database file.
func (r *Replicator) Folds() int64 { return r.folds }

// Until returns the newest restore point.
func (r *Replicator) Until() time.Time { return r.current.until }

// Pruned waits for background work. The next pass then prunes.
func (r *Replicator) Pruned() {
	r.ended.Wait()
	r.pruned = time.Time{}
}
