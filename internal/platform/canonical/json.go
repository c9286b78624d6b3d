package canonical

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// maxExact is the largest integer that a JSON number holds exactly wherever it is
// read (RFC 7493 section 2.2).
const maxExact = 1<<53 - 1

// What JSON answers for text that has no form of its own. None quotes the text.
var (
	ErrNotJSON = errors.New("is not one JSON value in UTF-8 in which each name of an object is there once")
	ErrInexact = errors.New("has a number that not every reader would keep: an integer beyond 2^53-1, or one out of range; send it as a string")
)

// JSON returns the form of a JSON text that RFC 8785 defines: members by the
// UTF-16 units of their names, one spelling of each string and number, no white
// space. Two texts have the same form if and only if they are the same value.
// Numbers that would not survive it are refused, and so are repeated names.
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

// readable looks at each token, because the form alone would round numbers
// without a word.
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

// exact reports whether a number is kept by whoever reads it as an IEEE 754
// double: an integer by its value, any other to the precision that there is.
func exact(number string) bool {
	f, err := strconv.ParseFloat(number, 64)
	return err == nil && (f != math.Trunc(f) || math.Abs(f) <= maxExact)
}
