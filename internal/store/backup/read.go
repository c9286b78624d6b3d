package backup

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxIdentity is the maximum size of a file with age identities in bytes.
const maxIdentity = 1 << 20

// Reader reads a backup.
type Reader struct {
	Head Head

	zstd   *zstd.Decoder
	tar    *tar.Reader
	next   string // the name of the next member, empty at the end
	read   []Part
	digest hash.Hash // over the descriptions
}

// Open opens a backup and reads its description (Head). identity has the content of a file with age identities.
func Open(from, identity io.Reader) (_ *Reader, err error) {
	identities, err := parseIdentities(identity)
	if err != nil {
		return nil, err
	}
	r, err := unpack(from, identities)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if err := r.begin(headMember, &r.Head); err != nil {
		return nil, err
	}
	if r.Head.Format != format {
		return nil, damaged("its description cannot be read")
	}
	return r, nil
}

func unpack(from io.Reader, identities []age.Identity) (*Reader, error) {
	opened, err := age.Decrypt(from, identities...)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return nil, errors.New("the backup is for another recipient; it cannot be decrypted with this identity")
	case err != nil:
		return nil, errors.New("it is not a backup of this program, or its beginning is damaged: it is not an age file")
	}
	r := &Reader{digest: sha256.New()}
	if r.zstd, err = zstd.NewReader(opened, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(windowSize), zstd.WithDecoderLowmem(true)); err != nil {
		return nil, err
	}
	r.tar = tar.NewReader(r.zstd)
	if err := r.advance(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// begin reads the first member: the description of the backup or segment.
func (r *Reader) begin(member string, head any) error {
	if r.next != member {
		return errors.New("it is not a backup of this program: its description is missing at the beginning")
	}
	// Check the format first: unknown fields of a newer format are not damage.
	text, err := r.description()
	if err != nil {
		return err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := decodeLoosely(text, &version); err != nil {
		return damaged("its description cannot be read")
	}
	if version.Format > format {
		return fmt.Errorf("the backup has format %d, but this program knows formats up to %d; restore it with the release that made it, or a later one", version.Format, format)
	}
	if err := decode(text, head); err != nil {
		return damaged("its description cannot be read")
	}
	return nil
}

func (r *Reader) journal() (rows []keyserver.AuditEntry, err error) {
	err = r.Part(journalPart, func(part io.Reader) (int64, error) {
		text, err := io.ReadAll(io.LimitReader(part, maxJournal))
		if err == nil {
			rows, err = audit.ReadRecords(nil, text)
		}
		return int64(len(rows)), err
	})
	return rows, err
}

func parseIdentities(from io.Reader) ([]age.Identity, error) {
	identities, err := age.ParseIdentities(io.LimitReader(from, maxIdentity))
	if err != nil {
		return nil, errors.New("--identity: the file has no age identity; it must have a line that begins with AGE-SECRET-KEY-") // err may contain the identity
	}
	return identities, nil
}

// Close releases the decoder.
func (r *Reader) Close() { r.zstd.Close() }

func (r *Reader) advance() error {
	h, err := r.tar.Next()
	if errors.Is(err, io.EOF) {
		r.next = ""
		return nil
	}
	if err != nil {
		return damage(err)
	}
	r.next = h.Name
	return nil
}

// damage converts a read error into an error that wraps ErrDamaged.
func damage(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it ends too early, like a backup that was interrupted")
	}
	return damaged("%v", err)
}

func (r *Reader) description() ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r.tar, maxDescription+1))
	if err != nil {
		return nil, damage(err)
	}
	if len(text) > maxDescription {
		return nil, damaged("%s is too large", r.next)
	}
	_, _ = r.digest.Write(text) // never fails
	return text, r.advance()
}

// Part passes the content of the next part to load. It fails if the part has another
// name.
func (r *Reader) Part(name string, load func(io.Reader) (rows int64, err error)) error {
	p := &part{reader: r, name: name, hash: sha256.New()}
	rows, err := load(p)
	if p.failed != nil {
		return p.failed
	}
	if err == nil {
		_, err = io.Copy(io.Discard, p)
	}
	if err != nil {
		return err
	}
	if p.number == 0 {
		return damaged("%s is missing", name)
	}
	r.read = append(r.read, Part{name, rows, p.size, p.hash.Sum(nil)})
	return nil
}

// End compares the parts that were read with the manifest.
func (r *Reader) End() error {
	if r.next != manifestMember {
		return damaged("its manifest is missing at the end")
	}
	text, err := r.description()
	if err != nil {
		return err
	}
	var m manifest
	if err := decode(text, &m); err != nil {
		return damaged("its manifest cannot be read")
	}
	if len(m.Parts) != len(r.read) || r.next != "" {
		return damaged("it has %d parts, but %d were written", len(r.read), len(m.Parts))
	}
	for i, is := range r.read {
		was := m.Parts[i]
		if is.Name != was.Name || is.Rows != was.Rows || is.Bytes != was.Bytes || !bytes.Equal(is.SHA256, was.SHA256) {
			return damaged("%s with %d rows differs in its hash from the %d rows of %s that were written", is.Name, is.Rows, was.Rows, was.Name)
		}
	}
	// Read to the end of the age file, which is after the tar, to detect a missing end.
	if n, err := io.Copy(io.Discard, io.LimitReader(r.zstd, maxDescription)); err != nil || n == maxDescription {
		return damage(errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

// part reads the members of a part as one stream.
type part struct {
	reader *Reader
	name   string
	number int
	open   bool
	hash   interface {
		io.Writer
		Sum(b []byte) []byte
	}
	size   int64
	failed error
}

// Read implements io.Reader.
func (p *part) Read(b []byte) (int, error) {
	for {
		if !p.open {
			if p.reader.next != fmt.Sprintf("%s/%08d", p.name, p.number+1) {
				if strings.HasPrefix(p.reader.next, p.name+"/") {
					p.failed = damaged("a piece of %s is missing", p.name)
					return 0, p.failed
				}
				return 0, io.EOF
			}
			p.open = true
			p.number++
		}
		n, err := p.reader.tar.Read(b)
		_, _ = p.hash.Write(b[:n]) // never fails
		p.size += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			p.open = false
			if p.failed = p.reader.advance(); p.failed != nil {
				return n, p.failed
			}
			if n == 0 {
				continue
			}
			return n, nil
		case err != nil:
			p.failed = damage(err)
			return n, p.failed
		}
		return n, nil
	}
}
