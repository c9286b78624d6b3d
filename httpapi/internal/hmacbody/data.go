package hmacbody

import (
	"fmt"
	"io"
	"os"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var (
	errNotBase64 = bad(memberData, "must be canonical base64 (standard alphabet, padded, no line breaks, no stray bits)")
	errTooLong   = bad(memberData, fmt.Sprintf("must encode at most %d bytes", keyserver.MaxMessage))
)

// step decodes the text of data in the window, at most until the chunk is full. If the window has less than one group
// of four characters, step reads more of the body.
func (b *Body) step() error {
	t, err := b.nextText()
	if err != nil {
		return explain(memberData, err)
	}
	whole := min(len(t.text)&^3, (chunkSize-b.n)/3*4)
	if err := b.decode(t.text[:whole]); err != nil {
		return err
	}
	// Move the undecoded characters directly before the text that follows. Resolving escapes may have left a gap
	// between them.
	left := len(t.text) - whole
	b.r = t.next - left
	copy(b.window[b.r:t.next], t.text[whole:])
	switch {
	case t.closed && left == 0:
		b.r++
		b.data = dataClosed
		return nil
	case left >= 4: // the chunk is full and must be written first
		return nil
	case t.closed: // the last group is incomplete
		return errNotBase64
	default:
		return explain(memberData, b.fill())
	}
}

// decode decodes complete groups of four characters into the chunk.
func (b *Body) decode(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if b.padded {
		return errNotBase64
	}
	n, err := canonical.DecodeInto(b.chunk[b.n:], text)
	if err != nil {
		return errNotBase64
	}
	b.padded = text[len(text)-1] == '='
	b.n += n
	b.total += int64(n)
	if b.total > keyserver.MaxMessage {
		return errTooLong
	}
	return nil
}

// spill moves the chunk into the temporary file.
func (b *Body) spill() error {
	if b.where.Account != nil {
		if err := b.where.Take(int64(b.n)); err != nil {
			return err
		}
		b.spooled += int64(b.n)
	}
	if b.spool == nil {
		if b.where.Account != nil {
			if err := b.where.Begin(); err != nil {
				return err
			}
		}
		f, err := os.CreateTemp(b.where.Dir, "message-*")
		if err != nil {
			return fmt.Errorf("spool a message: %w", err)
		}
		b.spool = f
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("spool a message: %w", err)
		}
	}
	if _, err := b.spool.Write(b.chunk[:b.n]); err != nil {
		return fmt.Errorf("spool a message: %w", err)
	}
	b.n = 0
	return nil
}

// unspool writes the stored message, using the chunk as its buffer.
func (b *Body) unspool(w io.Writer) (int64, error) {
	if _, err := b.spool.Seek(0, io.SeekStart); err != nil {
		return 0, fmt.Errorf("read a spooled message: %w", err)
	}
	// WriteTo of os.File would allocate another buffer.
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{b.spool}, b.chunk[:])
}
