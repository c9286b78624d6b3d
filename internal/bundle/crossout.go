package bundle

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"sync"
	"unicode"
)

// word is the end of a name whose value is a secret; names of files go on behind it.
const word = `(?:password|passwd|passphrase|pwd|secret|token|credential|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key|session[_-]?id|material|signature|pin)s?`

// name is such a name, as logs, settings and languages spell it, with its quotes.
const name = `\\?["'\x60]?[a-z0-9_.-]*` + word + `\\?["'\x60]?`

// stamp is what a log may put before each line.
const stamp = `(?:\d{4}-\d\d-\d\d[T ]\S+[ \t]+)?`

// keyed is the beginning of a line that gives such a name a value, as YAML does.
const keyed = `^` + stamp + `[ \t]*(?:- )?[a-z0-9_.-]*` + word + `:`

// header is one of HTTP by which somebody is let in.
const header = `(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:key|token|secret|auth)[a-z-]*)`

// secret is what must not leave, wherever it is found: what stands behind the first group, or
// all of it where there is none. too says which of what was found is meant; nil for all.
type secret struct {
	*regexp.Regexp
	too func(value []byte) bool
}

func of(expression string) secret { return secret{Regexp: regexp.MustCompile(expression)} }

// secrets would rather cross out too much: whoever helps asks for what he misses. Every
// command has this package, and none but this one compiles them.
var secrets = sync.OnceValue(func() []secret {
	return []secret{
		of(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|$)`),
		{regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]{16,}={0,2}`), isPrivateKey},
		of(`AGE-SECRET-KEY-[0-9A-Z]+|AGE-PLUGIN-[0-9A-Z-]+`),
		of(`(base64key://)[^\s"'\\]+`),
		of(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'<>]*@`), // who, and his password, whatever is in it
		// A header to the end of its text: of some only the last part is the secret.
		of(`(?i)(` + header + `\\?["']?\s*[:=]\s*\[?")(?:[^"\\]|\\.)+`),
		of(`(?i)(` + header + `\\?["']?\s*[:=]\s*\[?\\")(?:[^"\\]|\\[^"])+`),
		of(`(?i)(` + header + `["']?\s*[:=]\s*\[?')[^']+`),
		of(`(?i)(` + header + `\s*[:=]\s*)[^\s"'\[\\](?:=\\?"[^"\r\n]*"|[^\r\n"\\])*`),
		of(`(?i)(\b(?:bearer|dpop|basic|negotiate|digest)\s+)[A-Za-z0-9._~+/=-]{16,}`),
		of(`(?i)(\bdpop["']?\s*[:=]\s*\[?["']?)[A-Za-z0-9._~+/=-]{8,}`),
		// A value in quotes, many in brackets, one that ends with the word, and one that is all
		// the rest of a line.
		of(`(?i)(` + name + `\s*[:=]>?\s*")(?:[^"\\]|\\.)+`),
		of(`(?i)(` + name + `\s*[:=]>?\s*\\")(?:[^"\\]|\\[^"])+`),
		of(`(?i)(` + name + `\s*[:=]>?\s*')[^']+`),
		of(`(?i)(` + name + `\s*[:=]>?\s*\x60)[^\x60]+`),
		of(`(?i)(` + name + `\s*[:=]\s*)[\[{][^\]}]*[\]}]`),
		of(`(?im)(` + keyed + `[ \t]*[|>][0-9+-]*[ \t]*\r?\n)(?:` + stamp + `[ \t]+[^\r\n]*(?:\r?\n|\z))+`),
		of(`(?im)(` + keyed + `[ \t]+)[^\s"'\x60\[{|>][^\r\n]*`),
		{regexp.MustCompile(`(?i)(` + name + `\s*[:=]\s*)[^\s&;,"'\x60\\\])}<>\[{][^\s&;,"'\x60\\\])}<>]*`), isValue},
		of(`(?i)(--?[a-z0-9-]*` + word + `(?:[ \t]+|\\?["'],\s*)\\?["']?)[^\s"'\\-][^\s"'\\]*`),
		of(`(?i)(<[a-z0-9:_-]*` + word + `(?: [^>]*)?>)[^<]+`),
		of(`(?i)([?&](?:[a-z0-9_-]*sig|code|state)=)[^\s&"'\\]+`),
		{regexp.MustCompile(`(?i)(\b(?:password|passphrase|secret|token)\s+(?:is\s+|was\s+)?)[^\s"'\\,;:)]{6,}`), mixed},
		of(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), // a signed token
	}
})

// isValue leaves what only says whether there is one.
func isValue(value []byte) bool {
	switch string(bytes.ToLower(value)) {
	case "true", "false", "null", "none", "nil":
		return false
	}
	return true
}

// isPrivateKey reports whether a PEM text in base64 is of one.
func isPrivateKey(value []byte) bool {
	text, _ := base64.StdEncoding.DecodeString(string(value[:min(len(value), 64)/4*4]))
	return bytes.Contains(text, []byte("PRIVATE KEY"))
}

// mixed is how no word of a sentence is spelled.
func mixed(value []byte) bool {
	return bytes.ContainsFunc(value, unicode.IsLetter) && bytes.ContainsFunc(value, unicode.IsDigit)
}

// crossedOut stands where something was.
const crossedOut = "[crossed out]"

// CrossOut takes out of a text what looks like a secret, and answers how often.
func CrossOut(text []byte) ([]byte, int) {
	text, n := withoutEnds(text)
	for _, s := range secrets() {
		text = s.ReplaceAllFunc(text, func(found []byte) []byte {
			var before []byte
			if m := s.FindSubmatch(found); len(m) > 1 {
				before = m[1]
			}
			if s.too != nil && !s.too(found[len(before):]) {
				return found
			}
			n++
			return append(bytes.Clone(before), crossedOut...)
		})
	}
	return text, n
}

var (
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----`)
)

// maxKey is more than any private key has, with what a log puts before each of its lines.
const maxKey = 64 << 10

// withoutEnds takes out the ends of private keys whose beginning is not in the text, with
// whatever stands before them: each line may have a time of its own.
func withoutEnds(text []byte) ([]byte, int) {
	var out []byte
	n := 0
	for {
		end := keyEnd.FindIndex(text)
		if end == nil {
			return append(out, text...), n
		}
		if keyBegin.Match(text[:end[0]]) {
			out = append(out, text[:end[1]]...)
		} else {
			out = append(append(out, text[:max(end[0]-maxKey, 0)]...), crossedOut...)
			n++
		}
		text = text[end[1]:]
	}
}

// clean is one line of ours, or a name that somebody gave, without what looks like a secret.
func clean(text string) string {
	out, _ := CrossOut([]byte(text))
	return string(out)
}
