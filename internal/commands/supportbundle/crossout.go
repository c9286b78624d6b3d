package supportbundle

import (
	"bytes"
	"context"
	"slices"
)

// crossedOut stands where something was.
const crossedOut = "[crossed out]"

// span is a part of a text.
type span struct{ from, to int }

func (s span) empty() bool { return s.from >= s.to }

// text is what is looked through, and what was found in it.
type text struct {
	raw    []byte
	low    []byte // raw with small letters for capital ones, byte for byte
	found  []span
	quotes quotes
}

// rules each find, in one pass, what must not leave. They would rather cross out too much:
// whoever helps asks for what he misses. None looks at a byte more often than some fixed
// number of times, whatever the text is.
var rules = []func(*text){
	(*text).named, (*text).schemes, (*text).escapedNames, (*text).addresses, (*text).logins,
	(*text).marked, (*text).signed, (*text).privateKeys, (*text).keyLines, (*text).webKeys,
}

// CrossOut takes out of a text what looks like a secret, and what is given: spellings of
// secrets that are known. It answers how many places that were.
func CrossOut(ctx context.Context, raw []byte, given ...[]byte) ([]byte, int, error) {
	t := &text{raw: raw, low: lower(raw)}
	for _, find := range rules {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		find(t)
	}
	for _, spelling := range given {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		t.literal(spelling)
	}
	out, n := t.without()
	return out, n, nil
}

func (t *text) cross(from, to int) {
	if from < to {
		t.found = append(t.found, span{from, to})
	}
}

// without is the text without what was found, and how many places that were.
func (t *text) without() ([]byte, int) {
	slices.SortFunc(t.found, func(a, b span) int { return a.from - b.from })
	out := make([]byte, 0, len(t.raw))
	at, n := 0, 0
	for i := 0; i < len(t.found); n++ {
		s := t.found[i]
		for i++; i < len(t.found) && t.found[i].from <= s.to; i++ {
			s.to = max(s.to, t.found[i].to)
		}
		out = append(append(out, t.raw[at:s.from]...), crossedOut...)
		at = s.to
	}
	return append(out, t.raw[at:]...), n
}

// lower is as long as its argument, which bytes.ToLower is not.
func lower(raw []byte) []byte {
	low := bytes.Clone(raw)
	for i, c := range low {
		if 'A' <= c && c <= 'Z' {
			low[i] = c + 'a' - 'A'
		}
	}
	return low
}

// each calls for every place of a literal, which is in small letters; it answers where to go on.
func (t *text) each(in []byte, literal string, do func(from, to int) int) {
	for at := 0; ; {
		i := bytes.Index(in[at:], []byte(literal))
		if i < 0 {
			return
		}
		from := at + i
		at = max(do(from, from+len(literal)), from+1)
	}
}

// set is a set of bytes.
type set [256]bool

func setOf(members string) *set {
	var s set
	for i := range len(members) {
		s[members[i]] = true
	}
	return &s
}

func (s *set) not() *set {
	var other set
	for c, in := range s {
		other[c] = !in
	}
	return &other
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

var (
	ofName   = setOf(letters + digits + "_.-")
	ofBase64 = setOf(letters + digits + "+/=_-")
	ofToken  = setOf(letters + digits + "._~+/=-")
	ofJWT    = setOf(letters + digits + "._-")
	ofBlank  = setOf(" \t")
	ofSpace  = setOf(" \t\r\n\v\f")
	ofQuote  = setOf("\"'`")
)

// run is where the bytes of a set that begin at i end.
func (t *text) run(i int, of *set) int {
	for i < len(t.raw) && of[t.raw[i]] {
		i++
	}
	return i
}

// until is where the first byte of a set is, behind i.
func (t *text) until(i int, of *set) int {
	for i < len(t.raw) && !of[t.raw[i]] {
		i++
	}
	return i
}

// back is where the bytes of a set that end at i begin. It looks no further than any name is long.
func (t *text) back(i int, of *set) int {
	for least := max(i-maxName, 0); i > least && of[t.raw[i-1]]; {
		i--
	}
	return i
}

const maxName = 128

// has reports whether some literal, in small letters, stands at i.
func (t *text) has(i int, literal string) bool {
	return i >= 0 && len(t.low)-i >= len(literal) && string(t.low[i:i+len(literal)]) == literal
}

func (t *text) byte(i int) byte {
	if i < 0 || i >= len(t.raw) {
		return '\n'
	}
	return t.raw[i]
}

// bound reports whether a word can begin at i.
func (t *text) bound(i int) bool {
	c := t.byte(i - 1)
	return !ofName[c] || c == '.' || c == '-' || t.has(i-2, `\n`) || t.has(i-2, `\r`) || t.has(i-2, `\t`)
}

func (t *text) lineEnd(i int) int {
	if n := bytes.IndexByte(t.raw[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(t.raw)
}

// stamp is where what a log puts before each line, and begins at i, ends: a time, and a space.
func (t *text) stamp(i int) int {
	const pattern = "dddd-dd-dd"
	if len(t.raw)-i < len(pattern) {
		return i
	}
	for k := range len(pattern) {
		c := t.raw[i+k]
		if digit := '0' <= c && c <= '9'; digit != (pattern[k] == 'd') || !digit && c != '-' {
			return i
		}
	}
	at := t.until(i+len(pattern)+1, ofSpace)
	if !ofBlank[t.byte(at)] {
		return i
	}
	return at + 1
}
