package canonical

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxExact is the largest integer that every JSON parser keeps exactly (RFC 7493 section
// 2.2).
const maxExact = 1<<53 - 1

// Errors of JSON. They do not quote the text.
var (
	ErrNotJSON = errors.New("is not one JSON value in UTF-8 in which the names of each object are unique")
	ErrInexact = errors.New("has a number that some readers cannot keep exactly: an integer beyond 2^53-1, or a number out of range; send it as a string")
)

// JSON returns the canonical form of a JSON text (RFC 8785): members sorted by the UTF-16
// units of their names, one encoding of each string and number, no white space. Two texts
// have the same form if and only if they have the same value. It rejects numbers that
// would lose precision, and duplicate names.
func JSON(text []byte) ([]byte, error) {
	if err := readable(text); err != nil {
		return nil, err
	}
	form := jsontext.Value(bytes.Clone(text))
	if err := form.Canonicalize(); err != nil {
		return nil, ErrNotJSON
	}
	return form, nil
}

// readable checks each token, because Canonicalize silently rounds numbers.
func readable(text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	for values := 0; ; {
		token, err := dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && values == 1 && dec.StackDepth() == 0:
			return nil
		case err != nil:
			return ErrNotJSON
		case token.Kind() == '0' && !exact(token.String()):
			return ErrInexact
		}
		if dec.StackDepth() == 0 {
			values++
		}
	}
}

// exact reports whether a parser that uses IEEE 754 doubles keeps the number. Integers
// must keep their value; other numbers may be rounded.
func exact(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	return err == nil && (f != math.Trunc(f) || math.Abs(f) <= maxExact)
}
