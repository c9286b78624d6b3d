package certtext

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
)

// Block is one block of a PEM text.
type Block struct {
	Type string
	DER  []byte
	Line int // of the BEGIN line, from 1
}

// unexpected returns the error for a block of another type. It quotes the type only if it looks like a block type,
// because the text is untrusted.
func (b Block) unexpected(want string) error {
	if !plainLabel.MatchString(b.Type) {
		return fmt.Errorf("line %d: the type of the block is not %s", b.Line, want)
	}
	return fmt.Errorf("line %d: the block is of type %s, not %s", b.Line, b.Type, want)
}

var (
	plainLabel = regexp.MustCompile(`^[A-Z0-9 ]{1,32}$`)
	// boundary is a BEGIN or END line with its label (RFC 7468, section 3).
	boundary = regexp.MustCompile(`^-----(BEGIN|END) ([!-,.-~]+(?:[ -][!-,.-~]+)*)-----$`)
	// almost matches damaged boundaries, with any kind of dash.
	almost = regexp.MustCompile(`[-–—]{2,}\s*(?:BEGIN|END)\b|-----\s*(?i:BEGIN|END)\b`)
	// stray matches a line of base64 that is too long to be a comment.
	stray = regexp.MustCompile(`^[A-Za-z0-9+/]{48,}={0,2}$`)
)

var byteOrderMark = []byte("\xEF\xBB\xBF")

// IsPEM reports whether a text is intended as PEM: the text is UTF-16, or has a line like BEGIN or END, which base64
// cannot have.
func IsPEM(text []byte) bool { return isAlmost(text) || isUTF16(text) }

// isAlmost reports whether a text has something like a boundary. It first searches for a
// dash, which is much cheaper than the expression.
func isAlmost(text []byte) bool {
	return (bytes.IndexByte(text, '-') >= 0 || bytes.Contains(text, []byte("–")) || bytes.Contains(text, []byte("—"))) && almost.Match(text)
}

func isUTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte{0xFE, 0xFF}) || bytes.HasPrefix(text, []byte{0xFF, 0xFE})
}

// Blocks returns the blocks of a PEM text. Each line must be part of a block or a
// comment; a comment is text that could not be part of a block. It accepts white space
// around lines, empty lines, every kind of line break, and byte order marks. The first
// other line is an error.
func Blocks(text []byte) ([]Block, error) {
	if isUTF16(text) {
		return nil, errors.New("line 1: the text is UTF-16; save it as UTF-8")
	}
	var r reader
	for number := 1; len(text) > 0; number++ {
		var line []byte
		line, text = nextLine(text)
		line = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(line), byteOrderMark))
		if err := r.line(line, number); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if r.open != nil {
		return nil, fmt.Errorf("line %d: the block has no END line", r.open.Line)
	}
	return r.blocks, nil
}

// nextLine cuts off a line that ends with LF, CR LF or CR.
func nextLine(text []byte) (line, rest []byte) {
	end := bytes.IndexAny(text, "\r\n")
	switch {
	case end < 0:
		return text, nil
	case bytes.HasPrefix(text[end:], []byte("\r\n")):
		return text[:end], text[end+2:]
	default:
		return text[:end], text[end+1:]
	}
}

// reader has the complete blocks and the open one.
type reader struct {
	blocks []Block
	open   *Block // nil between blocks
	body   []byte // base64 of the open block
}

func (r *reader) line(line []byte, number int) error {
	if m := boundary.FindSubmatch(line); m != nil {
		if string(m[1]) == "BEGIN" {
			return r.begin(string(m[2]), number)
		}
		return r.end(string(m[2]))
	}
	switch {
	case isAlmost(line):
		return errors.New("a BEGIN or END line is damaged, or has other text before or after it")
	case r.open == nil:
		return comment(line)
	case bytes.HasPrefix(line, []byte("Proc-Type:")):
		return errors.New("the block is encrypted; decrypt it first")
	case bytes.IndexByte(line, ':') > 0:
		return errors.New("the block has headers; remove them")
	}
	for _, c := range line {
		switch {
		case c == ' ' || c == '\t':
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '=':
			r.body = append(r.body, c)
		default:
			return fmt.Errorf("the block that begins on line %d has a character that is not base64", r.open.Line)
		}
	}
	return nil
}

func (r *reader) begin(label string, number int) error {
	if r.open != nil {
		return fmt.Errorf("another block begins, but the block that begins on line %d has no END line", r.open.Line)
	}
	r.open, r.body = &Block{Type: label, Line: number}, nil
	return nil
}

func (r *reader) end(label string) error {
	switch {
	case r.open == nil:
		return errors.New("an END line has no BEGIN line")
	case label != r.open.Type:
		return fmt.Errorf("the type of the END line differs from the BEGIN line on line %d", r.open.Line)
	case len(r.body) == 0:
		return fmt.Errorf("the block that begins on line %d is empty", r.open.Line)
	}
	der := make([]byte, base64.StdEncoding.DecodedLen(len(r.body)))
	n, err := base64.StdEncoding.Strict().Decode(der, r.body)
	clear(r.body) // it may contain a key
	if err != nil || n == 0 {
		return fmt.Errorf("the base64 of the block that begins on line %d is incomplete or damaged", r.open.Line)
	}
	r.open.DER = der[:n]
	r.blocks, r.open, r.body = append(r.blocks, *r.open), nil, nil
	return nil
}

// comment refuses a line between blocks that is not text, or that looks like a part of a block.
func comment(line []byte) error {
	for _, c := range line {
		if c < ' ' && c != '\t' && c != '\v' && c != '\f' || c == 0x7F {
			return errors.New("a byte between blocks is not text")
		}
	}
	if stray.Match(line) {
		return errors.New("base64 is outside of a block; its BEGIN line is missing or damaged")
	}
	return nil
}
