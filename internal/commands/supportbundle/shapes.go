package supportbundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
)

// schemes finds what proves who asks, wherever it stands.
func (t *text) schemes() {
	for _, scheme := range []string{"bearer", "dpop", "basic", "negotiate", "digest"} {
		t.each(t.low, scheme, func(from, to int) int {
			at := t.space(to)
			if t.has(at, "%20") {
				at += 3
			}
			if at == to || !t.bound(from) {
				return to
			}
			at = t.run(t.stamp(at), ofBlank)
			if end := t.run(at, ofToken); end-at >= 16 {
				t.cross(at, end)
				return end
			}
			return to
		})
	}
}

// escapedNames finds the values of names of which JSON has letters by their numbers.
func (t *text) escapedNames() {
	t.quotes = quotes{}
	t.each(t.low, `\u00`, func(from, to int) int {
		begin := from
		for least := max(from-maxName, 0); begin > least && t.raw[begin-1] != '"' && t.raw[begin-1] != '\n'; {
			begin--
		}
		n := bytes.IndexByte(t.raw[from:min(from+maxName, len(t.raw))], '"')
		if n < 0 {
			return to
		}
		end := from + n
		var name string
		if json.Unmarshal(bytes.Join([][]byte{[]byte(`"`), bytes.TrimRight(t.raw[begin:end], `\`), []byte(`"`)}, nil), &name) != nil {
			return end
		}
		named := &text{raw: []byte(name + `":"x"`)}
		named.low = lower(named.raw)
		if named.named(); len(named.found) > 0 {
			if a, ok := t.assigned(begin, end); ok {
				s := t.value(a)
				t.cross(s.from, s.to)
				return max(s.to, end)
			}
		}
		return end
	})
}

// addresses finds who asks, and his password, in URLs: whatever is in it, up to the last @.
func (t *text) addresses() {
	t.each(t.raw, "://", func(from, to int) int {
		end := t.until(to, addressEnd)
		if at := bytes.LastIndexByte(t.raw[to:end], '@'); at >= 0 && ofName[t.byte(from-1)] {
			t.cross(to, to+at)
		}
		return end
	})
}

var addressEnd = setOf(" \t\r\n\v\f\"'<>")

// logins finds the passwords in addresses of databases that are no URLs.
func (t *text) logins() {
	for _, network := range []string{"@tcp", "@unix", "@udp"} {
		t.each(t.low, network, func(from, to int) int {
			if t.byte(to) != '(' {
				return to
			}
			begin := from
			for least := max(from-2*maxName, 0); begin > least && !addressEnd[t.raw[begin-1]]; {
				begin--
			}
			if n := bytes.IndexByte(t.raw[begin:from], ':'); n >= 0 {
				t.cross(begin+n+1, from)
			}
			return to
		})
	}
}

// mark begins what is a secret by its beginning.
type mark struct {
	begin string
	of    *set
	least int // of what follows
	keep  bool
	too   func(value []byte) bool // nil for all
}

var (
	ofWord  = setOf(letters + digits + "_-")
	ofCrypt = setOf(letters + digits + "./+=,$_-")
	ofValue = setOf("\"'\\ \t\r\n\v\f").not()
)

var marksOf = []mark{
	{"AGE-SECRET-KEY-", ofWord, 1, false, nil}, {"AGE-PLUGIN-", ofWord, 1, false, nil},
	{"age-secret-key-", ofWord, 1, false, nil},
	{"base64key://", ofValue, 1, true, nil},
	{"LS0tLS1CRUdJTi", ofBase64, 16, false, isPrivateKey},
	{"ghp_", ofWord, 16, false, nil}, {"gho_", ofWord, 16, false, nil}, {"ghu_", ofWord, 16, false, nil},
	{"ghs_", ofWord, 16, false, nil}, {"ghr_", ofWord, 16, false, nil}, {"github_pat_", ofWord, 16, false, nil},
	{"glpat-", ofWord, 16, false, nil}, {"xoxb-", ofWord, 10, false, nil}, {"xoxp-", ofWord, 10, false, nil}, {"xapp-", ofWord, 10, false, nil},
	{"sk_live_", ofWord, 10, false, nil}, {"rk_live_", ofWord, 10, false, nil}, {"npm_", ofWord, 30, false, nil},
	{"hooks.slack.com/services/", ofValue, 10, true, nil},
	{"$argon2", ofCrypt, 8, false, nil}, {"$scrypt", ofCrypt, 8, false, nil}, {"$pbkdf2", ofCrypt, 8, false, nil},
	{"$2a$", ofCrypt, 8, false, nil}, {"$2b$", ofCrypt, 8, false, nil}, {"$2x$", ofCrypt, 8, false, nil}, {"$2y$", ofCrypt, 8, false, nil},
	{"$1$", ofCrypt, 8, false, nil}, {"$5$", ofCrypt, 8, false, nil}, {"$6$", ofCrypt, 8, false, nil}, {"$7$", ofCrypt, 8, false, nil},
	{"$y$", ofCrypt, 8, false, nil}, {"$apr1$", ofCrypt, 8, false, nil}, {"{SSHA", ofValue, 8, false, nil}, {"{CRYPT}", ofValue, 8, false, nil},
}

// marked finds what its beginning tells.
func (t *text) marked() {
	for _, m := range marksOf {
		t.each(t.raw, m.begin, func(from, to int) int {
			end := t.run(to, m.of)
			if end-to < m.least || m.too != nil && !m.too(t.raw[from:end]) {
				return end
			}
			if m.keep {
				from = to
			}
			t.cross(from, end)
			return end
		})
	}
	for _, id := range []string{"AKIA", "ASIA"} { // and the key beside it
		t.each(t.raw, id, func(from, to int) int {
			end := t.run(to, ofBase64)
			if end-to != 16 || ofWord[t.byte(from-1)] {
				return end
			}
			t.cross(from, end)
			begin := t.run(end, besideID)
			if beside := t.run(begin, ofBase64); beside-begin >= 30 {
				t.cross(begin, beside)
			}
			return end
		})
	}
}

var besideID = setOf(" \t:,;/\"'\\")

// isPrivateKey reports whether a PEM text in base64 is of one.
func isPrivateKey(value []byte) bool {
	text, _ := base64.StdEncoding.DecodeString(string(value[:min(len(value), 64)/4*4]))
	return bytes.Contains(text, []byte("PRIVATE KEY"))
}

// signed finds signed tokens, also where a line ends in one.
func (t *text) signed() {
	t.each(t.raw, "eyJ", func(from, to int) int {
		end := t.run(to, ofJWT)
		pieces := bytes.Count(t.raw[from:end], []byte("."))
		broken := false
		for next := t.brokenOff(end); next > end; next = t.brokenOff(end) {
			pieces, broken, end = pieces+bytes.Count(t.raw[end:next], []byte(".")), true, next
		}
		if end-to >= 12 && (pieces >= 2 || broken) {
			t.cross(from, end)
		}
		return end
	})
}

// brokenOff is where what goes on in the next line ends, of a token that reaches the end of
// this one; else i.
func (t *text) brokenOff(i int) int {
	at := i
	if t.has(at, `\n`) {
		at++
	} else if t.byte(at) == '\r' {
		at++
	}
	if at >= len(t.raw) || t.raw[at] != '\n' && t.low[at] != 'n' {
		return i
	}
	begin := t.run(t.stamp(t.run(at+1, ofBlank)), ofBlank)
	end := t.run(begin, ofJWT)
	if end-begin < 8 || t.has(begin, "-----") || !mixed(t.raw[begin:end]) && bytes.Equal(t.raw[begin:end], t.low[begin:end]) {
		return i
	}
	if c := t.byte(end); ofSpace[c] || ofQuote[c] || c == '\\' {
		return end
	}
	return i
}

// webKeys finds what is private of keys in JSON.
func (t *text) webKeys() {
	done := 0
	t.each(t.low, "kty", func(from, to int) int {
		end := min(to+maxWebKey, len(t.raw))
		for i := max(done, from-maxWebKey); i < end; i++ {
			if s := t.member(i); !s.empty() {
				t.cross(s.from, s.to)
				i = s.to - 1
			}
		}
		done = end
		return to
	})
}

// member is the value of a member that is private of a key.
func (t *text) member(i int) span {
	if !ofMember[t.low[i]] || ofName[t.byte(i-1)] {
		return span{}
	}
	for _, name := range []string{"dp", "dq", "qi", "d", "k", "p", "q"} {
		if t.has(i, name) {
			if a, ok := t.assigned(i, i+len(name)); ok {
				begin, _ := t.quote(a.at)
				return span{begin, t.run(begin, ofBase64)}
			}
		}
	}
	return span{}
}

// maxWebKey is how far a key may reach from where its kind stands.
const maxWebKey = 16 << 10

var ofMember = setOf("dkpq")
