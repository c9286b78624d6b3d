package hmacbody

import (
	"bytes"
	"errors"
	"io"
)

// fill reads more of the body into the window. It returns errEnd at the end of the body.
func (b *Body) fill() error {
	if b.r > 0 {
		b.w = copy(b.window[:], b.window[b.r:b.w])
		b.r = 0
	}
	const patience = 100 // empty reads in a row, as in bufio
	for range patience {
		n, err := b.src.Read(b.window[b.w:])
		b.w += n
		b.high = max(b.high, b.w)
		switch {
		case n > 0:
			return nil // the next read returns the error again
		case errors.Is(err, io.EOF):
			return errEnd
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}

// token returns the next byte that is not white space, and advances past it.
func (b *Body) token() (byte, error) {
	for {
		for b.r < b.w {
			c := b.window[b.r]
			b.r++
			switch c {
			case ' ', '\t', '\r', '\n':
			default:
				return c, nil
			}
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
}

// text reads a short string after its opening quote and returns it without escapes. The
// bytes are valid until the next read.
func (b *Body) text() ([]byte, error) {
	escaped := false
	for at := 0; ; at++ {
		for b.r+at >= b.w {
			if err := b.fill(); err != nil {
				return nil, err
			}
		}
		if at > maxString {
			return nil, bad("body", "must have shorter names and a shorter hidden link")
		}
		switch b.window[b.r+at] {
		case '\\':
			escaped = true
			at++ // an escaped character never closes the string
		case '"':
			start := b.r
			b.r += at + 1
			if escaped {
				return b.unescaped(start)
			}
			return b.window[start : b.r-1], nil
		}
	}
}

// unescaped resolves the escapes of the string from start to the closing quote
// that was just read.
func (b *Body) unescaped(start int) ([]byte, error) {
	quoted := make([]byte, 0, b.r-start+1)
	quoted = append(quoted, '"')
	return unquote(append(quoted, b.window[start:b.r]...))
}

// run is a part of the text of data in the window, without escapes.
type run struct {
	text   []byte
	next   int  // index in the window of the byte after text
	closed bool // the byte at next is the closing quote
}

// nextText returns the text of data from the read position. It resolves escapes in place,
// because the result is never longer.
func (b *Body) nextText() (run, error) {
	text := b.window[b.r:b.w]
	closed := false
	if quote := bytes.IndexByte(text, '"'); quote >= 0 {
		text, closed = text[:quote], true
	}
	if backslash := bytes.IndexByte(text, '\\'); backslash >= 0 {
		return b.unescape(b.r + backslash)
	}
	return run{text: text, next: b.r + len(text), closed: closed}, nil
}

// unescape resolves escapes from index at. Base64 needs no escape, but a JSON writer may
// escape the slash or any other character.
func (b *Body) unescape(at int) (run, error) {
	to := at
	for at < b.w {
		c, size := b.window[at], 1
		switch c {
		case '"':
			return run{text: b.window[b.r:to], next: at, closed: true}, nil
		case '\\':
			var err error
			if c, size, err = escape(b.window[at:b.w]); err != nil {
				return run{}, err
			}
			if size == 0 { // the window ends within the escape
				return run{text: b.window[b.r:to], next: at}, nil
			}
		}
		b.window[to] = c
		to, at = to+1, at+size
	}
	return run{text: b.window[b.r:to], next: at}, nil
}

// escape decodes one escape of a base64 character. Size 0 means that text does not
// contain all of it yet.
func escape(text []byte) (c byte, size int, err error) {
	const unicode = 6 // backslash, u, four digits
	switch {
	case len(text) < 2:
		return 0, 0, nil
	case text[1] == '/':
		return '/', 2, nil
	case text[1] != 'u':
		return 0, 0, errNotBase64
	case len(text) < unicode:
		return 0, 0, nil
	}
	var n int
	for _, d := range text[2:unicode] {
		h := digit(d)
		if h < 0 {
			return 0, 0, errSyntax
		}
		n = n<<4 | h
	}
	if !base64Char(n) {
		// Reject the escape now. If the window ends within the text, the text is scanned again, and an unescaped
		// backslash would then begin another escape.
		return 0, 0, errNotBase64
	}
	return byte(n), unicode, nil
}

func base64Char(n int) bool {
	switch {
	case n >= 'A' && n <= 'Z', n >= 'a' && n <= 'z', n >= '0' && n <= '9':
		return true
	default:
		return n == '+' || n == '/' || n == '='
	}
}

func digit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}
