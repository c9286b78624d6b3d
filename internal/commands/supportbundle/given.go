package supportbundle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
)

// Bounds of secrets that are crossed out wherever they are found.
const (
	// least is what a password of a key server has at least. A shorter one, as a directory may
	// have, is crossed out where it stands alone: it may be a part of any word.
	least = 8
	// tooShort is what would cross out words everywhere.
	tooShort = 4
)

// spellingsOf answers how texts may have a secret that is known.
func spellingsOf(secret string) [][]byte {
	if len(secret) < tooShort {
		return nil
	}
	all := []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for depth, texts := 0, []string{secret}; depth < 3; depth++ { // JSON in JSON in JSON
		var deeper []string
		for _, text := range texts {
			deeper = append(deeper, inJSON(text, true), inJSON(text, false), strings.ReplaceAll(inJSON(text, false), "/", `\/`))
		}
		all, texts = append(all, deeper...), deeper
	}
	for text, depth := secret, 0; depth < 2; depth++ {
		for _, encoded := range []string{url.QueryEscape(text), url.PathEscape(text), strings.ReplaceAll(url.QueryEscape(text), "+", "%20"), everyByte(text)} {
			all = append(all, encoded, lowerHex(encoded))
		}
		text = url.QueryEscape(text)
	}
	all = append(all, inBase64(secret)...)
	return unique(all)
}

// inJSON is a text without its quotes; html: with what is special in HTML by its number.
func inJSON(text string, html bool) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		return text
	}
	text = string(quoted[1 : len(quoted)-1])
	if !html {
		text = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(text)
	}
	return text
}

// everyByte is a text in which a URL has all that is no letter or digit by its number.
func everyByte(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if ofWord[c] && c != '-' && c != '_' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

// lowerHex spells %3D as %3d.
func lowerHex(text string) string {
	out := []byte(text)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:], bytes.ToLower(out[i+1:i+3]))
		}
	}
	return string(out)
}

// inBase64 is what base64 has of a text, whatever stands before and behind it.
func inBase64(text string) (all []string) {
	for before := range 3 {
		encoded := base64.StdEncoding.EncodeToString(append(make([]byte, before), text...))
		first := (before*8 + 5) / 6          // letters that what stands before has a part in
		last := (before + len(text)) * 8 / 6 // letters that are of the text alone
		if core := encoded[first:last]; len(core) >= tooShort {
			all = append(all, core, strings.NewReplacer("+", "-", "/", "_").Replace(core))
		}
	}
	return all
}

func unique(all []string) (out [][]byte) {
	seen := map[string]bool{}
	for _, text := range all {
		if !seen[text] {
			seen[text] = true
			out = append(out, []byte(text))
		}
	}
	return out
}

// literal finds a spelling of a secret that is known.
func (t *text) literal(spelling []byte) {
	t.each(t.raw, string(spelling), func(from, to int) int {
		if len(spelling) >= least || !letter(t.byte(from-1)) && !letter(t.byte(to)) {
			t.cross(from, to)
		}
		return to
	})
}

func letter(c byte) bool { return c != '-' && c != '_' && ofWord[c] }
