package supportbundle

import (
	"bytes"
	"strings"
	"sync"
)

// noun is the end of a name whose value is a secret.
type noun struct {
	word string
	take func(t *text, from, to int) span // from, to: where the word is
}

// nouns are those that begin with a letter. Every command has this package, and none but
// this one makes them.
var nouns = sync.OnceValue(func() (of [256][]noun) {
	for _, kind := range []struct {
		words string
		take  func(*text, int, int) span
	}{
		{"password passwort passwd passphrase passcode secret token credential seed private-lines", (*text).spoken},
		{"pass pwd pw psk otp mfa-code sid session-id material signature pin stringdata " +
			"api-key access-key account-key private-key secret-key signing-key encryption-key master-key shared-key", (*text).secret},
		{"key", (*text).key},
		{"kek key-bytes", (*text).keyEncryptionKey},
		{"sig code state", (*text).parameter},
		{"authorization cookie dpop", (*text).header},
		{"x-", (*text).ownHeader},
		{"-u --user --proxy-user", (*text).user},
	} {
		for _, word := range strings.Fields(kind.words) {
			for _, word := range spellings(word) {
				of[word[0]] = append(of[word[0]], noun{word, kind.take})
			}
		}
	}
	return of
})

// spellings of a name of several words.
func spellings(word string) []string {
	if !strings.Contains(word[1:], "-") || word[0] == '-' || word == "x-" {
		return []string{word}
	}
	return []string{word, strings.ReplaceAll(word, "-", "_"), strings.ReplaceAll(word, "-", "")}
}

// named finds what is the value of such a name.
func (t *text) named() {
	of := nouns()
	t.quotes = quotes{}
	for i, next := 0, (span{}); i < len(t.low); i++ {
		if !next.empty() && i == next.from { // nothing in it is looked at again
			i, next = t.onward(next)-1, span{}
			continue
		}
		for _, n := range of[t.low[i]] {
			if !t.has(i, n.word) {
				continue
			}
			if s := n.take(t, i, i+len(n.word)); !s.empty() {
				t.cross(s.from, s.to)
				next = s
				break
			}
		}
	}
}

// onward is where to go on behind what was found: it may end in a name, of which the value
// comes then. Behind quotes begins something else.
func (t *text) onward(found span) int {
	if c := t.byte(found.to); ofQuote[c] || c == '\\' {
		return found.to
	}
	return max(found.to-maxName/2, found.from)
}

// spoken finds the value of what sentences speak of, too.
func (t *text) spoken(from, to int) span {
	if s := t.secret(from, to); !s.empty() {
		return s
	}
	return t.prose(from, to)
}

// secret finds the value of what a word ends the name of, however it is given.
func (t *text) secret(from, to int) span {
	if t.has(to, "s") {
		to++
	}
	if c := t.byte(to); c != '-' && ofWord[c] { // it goes on, as the name of a file does
		return span{}
	}
	if a, ok := t.assigned(t.back(from, ofName), to); ok {
		return t.value(a)
	}
	for _, find := range []func(*text, int, int) span{(*text).flag, (*text).listed, (*text).element, (*text).pair} {
		if s := find(t, from, to); !s.empty() {
			return s
		}
	}
	return span{}
}

// flag finds the value of a flag, which is the next word, or the next text of a list.
func (t *text) flag(from, to int) span {
	if bytes.IndexByte(t.low[t.back(from, ofName):from], '-') < 0 {
		return span{}
	}
	end, _ := t.quote(to)
	at := t.run(to, ofBlank)
	if end > to && t.byte(end) == ',' {
		at = t.space(end + 1)
	}
	if at == to {
		return span{}
	}
	if begin, slashes := t.quote(at); begin > at {
		return t.inQuotes(begin, slashes, t.raw[begin-1])
	}
	at = t.run(at, ofSlash)
	s := span{at, t.run(at, ofValue)}
	if t.byte(at) == '-' && (t.byte(at+1) == '-' || !mixed(t.raw[s.from:s.to])) {
		return span{} // another flag
	}
	if word := string(t.low[s.from:s.to]); word == "is" || word == "was" {
		return span{} // a sentence
	}
	return s
}

// listed finds the text behind one which is a name, as in a table.
func (t *text) listed(_, to int) span {
	end, _ := t.quote(to)
	if end == to || t.byte(end) != ',' {
		return span{}
	}
	at := t.run(end+1, ofBlank)
	begin, slashes := t.quote(at)
	if begin == at {
		return span{}
	}
	if s := t.inQuotes(begin, slashes, t.raw[begin-1]); mixed(t.raw[s.from:min(s.to, s.from+maxName)]) {
		return s
	}
	return span{}
}

// element finds what is in an element of XML.
func (t *text) element(from, to int) span {
	begin := t.back(from, ofElement)
	if t.byte(begin-1) != '<' || t.byte(begin) == '/' {
		return span{}
	}
	if c := t.byte(to); c != '>' && !ofSpace[c] {
		return span{}
	}
	n := bytes.IndexByte(t.raw[to:min(to+maxAttributes, len(t.raw))], '>')
	if n < 0 {
		return span{}
	}
	return span{to + n + 1, t.until(to+n+1, ofTag)}
}

const maxAttributes = 1 << 10

var (
	ofElement = setOf(letters + digits + "_.:-")
	ofTag     = setOf("<")
)

// pair finds what stands as the value beside a name that is itself a value.
func (t *text) pair(_, to int) span {
	at := to
	for {
		next := t.stamp(t.run(at, ofPair))
		if next == at {
			break
		}
		at = next
	}
	for _, word := range []string{"value", "val"} {
		if at > to && t.has(at, word) {
			if a, ok := t.assigned(at, at+len(word)); ok {
				return t.value(a)
			}
		}
	}
	return span{}
}

var ofPair = setOf(" \t\r\n,;\\\"'`")

// prose finds what a sentence says a secret is.
func (t *text) prose(from, to int) span {
	if t.has(to, "s") {
		to++
	}
	if !t.bound(from) || !ofSpace[t.byte(to)] {
		return span{}
	}
	told := true
	for n := range 7 {
		begin := t.run(to, ofBlank)
		if told { // also in the next line
			begin = t.run(t.stamp(t.run(begin, ofSpace)), ofBlank)
		}
		to = t.until(begin, ofSpace)
		if to == begin || to-begin > maxWord {
			return span{}
		}
		if said := t.said(begin, to, n < 2); told && !said.empty() {
			return said
		}
		word := t.low[begin:to]
		if bytes.Contains(word, []byte(`",`)) || bytes.Contains(word, []byte(`"}`)) {
			return span{}
		}
		switch string(word) {
		case "is", "was", "be", "to", "->", "=", ":", "→":
			told = true
		default:
			told = word[len(word)-1] == ':'
		}
	}
	return span{}
}

const maxWord = 1 << 10

// said is a word of a sentence without its quotes and stops, if no word is spelled like that.
// Further on in a sentence, what gives a name some value is of something else.
func (t *text) said(from, to int, next bool) span {
	if end, _ := t.quote(from); end <= to {
		from = end
	}
	for at := from; at < to; at++ {
		if ofStop[t.raw[at]] {
			to = at
		}
	}
	if to-from < 6 || !mixed(t.raw[from:to]) {
		return span{}
	}
	if name := t.run(from, ofName); !next && t.byte(name) == '=' && name+2 < to && !ofBase64Only(t.raw[from:to]) {
		return span{}
	}
	return span{from, to}
}

var ofStop = setOf("\"'\\,;:)")

// mixed is how no word of a sentence is spelled.
func mixed(value []byte) bool {
	if len(value) < 6 {
		return false
	}
	letter, digit := false, false
	for _, c := range value {
		letter = letter || 'a' <= c|0x20 && c|0x20 <= 'z'
		digit = digit || '0' <= c && c <= '9'
	}
	return letter && digit
}

// ofBase64Only reports whether a text ends as base64 does that is padded, and has no other sign of it.
func ofBase64Only(value []byte) bool {
	return bytes.IndexByte(value, '=') >= len(value)-2
}

// key finds the value of a key, which mostly is a name, where it looks like what a key is made of.
func (t *text) key(from, to int) span {
	name := t.back(from, ofName)
	if bytes.Contains(t.low[name:from], []byte("public")) {
		return span{}
	}
	return t.made(name, to, isMaterial)
}

func (t *text) keyEncryptionKey(from, to int) span {
	return t.made(t.back(from, ofName), to, mixed)
}

// made finds a value in one piece, if it is made as it has to be.
func (t *text) made(name, to int, as func([]byte) bool) span {
	a, ok := t.assigned(name, to)
	if !ok {
		return span{}
	}
	begin, _ := t.quote(a.at)
	end := begin
	for end < len(t.raw) && end < begin+maxWord && ofBase64[t.raw[end]] && t.raw[end] != '=' {
		end++
	}
	if t.byte(end) == ':' || !as(t.raw[begin:end]) { // a URL says where a key is
		return span{}
	}
	return span{begin, t.run(end, ofBase64)}
}

// isMaterial reports whether a value may be the bytes of a key in base64 or hex, and no
// identifier of words.
func isMaterial(value []byte) bool {
	const least = 20
	if len(value) < least {
		return false
	}
	upper, small, other, hex := false, false, false, true
	for _, c := range value {
		switch {
		case '0' <= c && c <= '9':
			other = true
		case 'A' <= c && c <= 'Z':
			upper, hex = true, hex && c <= 'F'
		case 'a' <= c && c <= 'z':
			small, hex = true, hex && c <= 'f'
		default:
			other, hex = true, false
		}
	}
	return hex || upper && small && other
}

// parameter finds what lets somebody in by a URL.
func (t *text) parameter(from, to int) span {
	at, encoded := t.separator(to)
	if t.byte(to) != '=' && !encoded {
		return span{}
	}
	if !t.has(from, "sig") && !bytes.ContainsRune([]byte("?&#;"), rune(t.byte(from-1))) &&
		!t.has(from-6, `\u0026`) && t.encoded(from-3, "26", "3f", "23") != from {
		return span{} // which is not one of a URL
	}
	return span{at, t.until(at, parameterEnd)}
}

var parameterEnd = setOf(" \t\r\n&\"'\\")

// header finds what a header of HTTP says, all of it: of some only the last part is the secret.
func (t *text) header(from, to int) span {
	a, ok := t.assigned(t.back(from, ofName), to)
	if !ok {
		return span{}
	}
	a.whole = true
	return t.value(a)
}

func (t *text) ownHeader(from, to int) span {
	if !t.bound(from) {
		return span{}
	}
	end := to
	for end < len(t.raw) && end < to+maxName && ofName[t.raw[end]] {
		end++
	}
	for _, word := range []string{"key", "token", "secret", "auth"} {
		if bytes.Contains(t.low[to:end], []byte(word)) {
			return t.header(from, end)
		}
	}
	return span{}
}

// user finds the password behind the name that a flag of curl and others has.
func (t *text) user(from, to int) span {
	short := to-from == 2 // whose value may stand next to it
	if c := t.byte(to); !ofPair[t.byte(from-1)] || !short && c != '=' && !ofPair[c] {
		return span{}
	}
	begin := t.run(to, ofPairOrEqual)
	name := t.until(begin, userEnd)
	if t.byte(name) != ':' || name-begin > maxName {
		return span{}
	}
	return span{name + 1, t.run(name+1, ofValue)}
}

var (
	ofSlash       = setOf("\\")
	ofPairOrEqual = setOf("= \t\r\n,;\\\"'`")
	userEnd       = setOf(" \t\r\n\"':\\/")
)
