package supportbundle

import "bytes"

// quotes count those of a line, up to some place in it.
type quotes struct {
	line, to int // where the line begins; where it was counted to
	odd      [3]bool
}

const marks = "\"'`"

// line counts the quotes before i, which has to grow from call to call.
func (t *text) line(i int) quotes {
	q := &t.quotes
	for ; q.to < i; q.to++ {
		if c := t.raw[q.to]; c == '\n' {
			*q = quotes{line: q.to + 1, to: q.to}
		} else if ofQuote[c] {
			n := bytes.IndexByte([]byte(marks), c)
			q.odd[n] = !q.odd[n]
		}
	}
	return *q
}

// open reports whether a quote is the end of one that was opened before.
func (q quotes) open(c byte) bool { return q.odd[bytes.IndexByte([]byte(marks), c)] }

func (q quotes) inside() bool { return q.odd != [3]bool{} }

// assignment is how a name is given a value.
type assignment struct {
	from   int  // where the name begins
	at     int  // where the value does
	quoted bool // the name is
	url    bool // it is as in a URL
	whole  bool // all of the line is the value, as of a header
}

// assigned answers how the name of which some word ends at i is given a value.
func (t *text) assigned(from, i int) (assignment, bool) {
	if t.has(i, "s") {
		i++
	}
	a := assignment{from: from}
	if end, _ := t.quote(i); end > i {
		a.quoted, i = true, end
	}
	begin := t.space(t.run(i, ofSlash))
	end, url := t.separator(begin)
	a.url = url
	a.at = t.run(end, ofBlank)
	return a, end > begin
}

// space is where white space that begins at i ends, also what of it no eye sees.
func (t *text) space(i int) int {
	for {
		switch i = t.run(i, ofSpace); {
		case t.has(i, "\u200b") || t.has(i, "\ufeff"):
			i += 3
		case t.has(i, "\u00a0"):
			i += 2
		default:
			return i
		}
	}
}

// quote answers where a quote that begins at i ends, and how many backslashes it has.
func (t *text) quote(i int) (end, slashes int) {
	at := i
	for t.byte(at) == '\\' {
		at++
	}
	if ofQuote[t.byte(at)] {
		return at + 1, at - i
	}
	if end := t.encoded(i, "22", "27"); end > i {
		return end, 0
	}
	return i, 0
}

// encoded is where one of some characters ends which a URL has at i, however often it was encoded.
func (t *text) encoded(i int, codes ...string) int {
	if t.byte(i) != '%' {
		return i
	}
	at := i + 1
	for t.has(at, "25") {
		at += 2
	}
	for _, code := range codes {
		if t.has(at, code) {
			return at + len(code)
		}
	}
	return i
}

// separator is where what separates a name and its value, and begins at i, ends.
func (t *text) separator(i int) (end int, url bool) {
	if end := t.encoded(i, "3d", "3a"); end > i {
		return end, true
	}
	for _, s := range []string{"->", "→", "：", "＝", "（", `\u003d`, `\u003a`} {
		if t.has(i, s) {
			return i + len(s), false
		}
	}
	at := i
	for at < i+3 && (t.byte(at) == ':' || t.byte(at) == '=' || t.byte(at) == '!' && t.byte(at+1) == '=') {
		at++
	}
	if at > i && t.byte(at) == '>' {
		at++
	}
	return at, false
}

// value is what an assignment gives.
func (t *text) value(a assignment) span {
	i := a.at
	if end, slashes := t.quote(i); end > i {
		return t.inQuotes(end, slashes, t.raw[end-1])
	}
	switch c := t.byte(i); {
	case a.url:
		return span{i, t.until(i, urlEnd)}
	case i >= len(t.raw):
		return span{}
	case c == '\r' || c == '\n':
		return t.below(i)
	case c == '[' || c == '{':
		return span{i, t.brackets(i)}
	case (c == '|' || c == '>') && t.byte(t.run(i+1, blockMark)) == '\n':
		if s := t.below(t.lineEnd(i)); !s.empty() {
			return s
		}
	case ofPrefix[c] && (t.byte(i+1) == '"' || t.byte(i+1) == '\''): // of Python and others
		return t.inQuotes(i+2, 0, t.raw[i+1])
	}
	return t.bare(a)
}

var (
	urlEnd    = setOf(" \t\r\n\"'`\\")
	blockMark = setOf(" \t\r0123456789+-")
	ofPrefix  = setOf("bBrRuUfF@$")
)

// inQuotes is what stands from i to the end of a quote that was opened before it, with some
// backslashes: a text in a text has more of them.
func (t *text) inQuotes(i, slashes int, quote byte) span {
	if !ofQuote[quote] { // %22
		return span{i, t.until(i, urlEnd)}
	}
	for at := i; ; at++ {
		n := bytes.IndexByte(t.raw[at:], quote)
		if n < 0 {
			return span{i, len(t.raw)}
		}
		at += n
		before := 0
		for at-before > i && t.raw[at-before-1] == '\\' {
			before++
		}
		if before >= slashes && (before-slashes)%(2*(slashes+1)) != 0 {
			continue // it belongs to the text
		}
		// Twice is how some languages spell one.
		if next, again := t.quote(at + 1); next > at+1 && t.raw[next-1] == quote && again == slashes && before == slashes {
			at = next - 1
			continue
		}
		return span{i, at - min(before, slashes)}
	}
}

// brackets is where those that are opened at i are closed.
func (t *text) brackets(i int) int {
	for depth := 0; i < len(t.raw); i++ {
		switch c := t.raw[i]; c {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"', '\'', '`':
			slashes := 0
			for t.byte(i-slashes-1) == '\\' {
				slashes++
			}
			if p := t.byte(i - slashes - 1); p < 0x80 && ofName[p] {
				continue // an apostrophe
			}
			i = t.inQuotes(i+1, slashes, c).to + slashes
		}
	}
	return len(t.raw)
}

// below is what stands in the lines below that which ends at i, as far as they are deeper in.
func (t *text) below(i int) span {
	i = t.lineEnd(i)
	depth := t.depth(bytes.LastIndexByte(t.raw[:i], '\n') + 1)
	s := span{}
	for at := i + 1; at < len(t.raw); {
		end := t.lineEnd(at)
		begin := t.stamp(at)
		text := t.run(begin, ofBlank)
		switch {
		case text >= end || t.raw[text] == '\r': // an empty line
		case t.depth(at) > depth:
			if s.empty() {
				s.from = text
			}
			s.to = end
		case s.empty() && !t.record(at) && (t.raw[text] == '[' || t.raw[text] == '{'):
			return span{text, t.brackets(text)}
		case s.empty() && !t.record(at): // of a text that is not indented
			return span{text, end}
		default:
			return s
		}
		at = end + 1
	}
	return s
}

// record reports whether a line that begins at i is one of a log in JSON.
func (t *text) record(i int) bool {
	return t.has(i, `{"time"`) || t.has(i, `{"ts"`) || t.has(i, `{"level"`)
}

// depth is how far in a line is that begins at i.
func (t *text) depth(i int) int {
	begin := t.stamp(i)
	return t.run(begin, ofBlank) - begin
}

// bare is a value without quotes.
func (t *text) bare(a assignment) span {
	i := a.at
	word := t.until(i, wordEnd)
	if !a.whole {
		switch string(t.low[i:word]) {
		case "true", "false", "null", "none", "nil":
			return span{} // it only says whether there is one
		}
	}
	if a.quoted && !a.whole {
		return span{i, t.until(i, scalarEnd)}
	}
	q := t.line(a.from)
	first := !q.inside() && t.firstOfLine(q.line, a.from)
	end := t.bareEnd(i, q, a.whole || first && ofBlank[t.byte(i-1)])
	if first && end < len(t.raw) && t.raw[end] == '\n' {
		if more := t.below(end); !more.empty() && t.depth(end+1) > t.depth(q.line) {
			end = more.to
		}
	}
	return span{i, end}
}

var (
	wordEnd   = setOf(" \t\r\n&;,\"'`\\)]}<>|")
	scalarEnd = setOf(" \t\r\n,}]\"\\")
	between   = setOf(" \t,;&|")
)

// firstOfLine reports whether a name that begins at i is the first of its line, as in YAML.
func (t *text) firstOfLine(line, i int) bool {
	at := t.run(t.stamp(line), ofBlank)
	if t.byte(at) == '-' && ofBlank[t.byte(at+1)] {
		at = t.run(at+1, ofBlank)
	}
	return at == i
}

// bareEnd is where a value without quotes ends: with the line, or the quotes that all of it
// stands in, or before the next name, unless the whole line is the value.
func (t *text) bareEnd(i int, q quotes, whole bool) int {
	block := t.byte(i) == '|' || t.byte(i) == '>' // YAML in a text in quotes
	for at := i; at < len(t.raw); at++ {
		switch c := t.raw[at]; {
		case c == '\n':
			return at
		case ofQuote[c] && q.open(c):
			end := at
			for end > i && t.raw[end-1] == '\\' {
				end--
			}
			if end == i || t.raw[end-1] != '=' {
				return end
			}
			at = t.inQuotes(at+1, at-end, c).to + at - end // a part of it has quotes
		case c == '\\' && q.inside() && (t.byte(at+1) == 'n' || t.byte(at+1) == 'r') && at > i && !block:
			return at
		case between[c] && !whole:
			next := t.run(at, between)
			if t.another(next, t.byte(next-1)) {
				return at
			}
			at = next - 1
		}
	}
	return len(t.raw)
}

// another reports whether a name with a value begins at i, behind some byte.
func (t *text) another(i int, behind byte) bool {
	end := t.run(i, ofName)
	if end == i || end-i > maxName {
		return false
	}
	switch t.byte(end) {
	case '=':
		return true
	case ':':
		return !t.has(end, "://") && (!ofBlank[behind] || !ofSpace[t.byte(end+1)])
	}
	return false
}
