package ctl

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// route returns the verb of a request, or nil if this build has none. If several paths match, it chooses the one with
// the most literal segments.
func (t *table) route(method, path string) *verb {
	path, _, _ = strings.Cut(path, "?")
	have := strings.Split(path, "/")
	var found *verb
	most := -1
	for _, v := range t.verbs {
		literal := 0
		fits := v.route.Method == method && slices.EqualFunc(strings.Split(v.route.Path, "/"), have, func(want, is string) bool {
			if want == is {
				literal++
			}
			return want == is || strings.HasPrefix(want, "{") && is != ""
		})
		if fits && literal > most {
			found, most = v, literal
		}
	}
	return found
}

// sent prints the entire body of a request that waits for approval, because an approver must read all of it. Then it
// explains encoded values.
func (p *printer) sent(name string, request members[jsontext.Value], body jsontext.Value) error {
	text := body.Clone()
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(p.out, p.bold(cut(name, p.width))); err != nil {
		return err
	}
	for l := range strings.SplitSeq(escaped(string(text)), "\n") {
		if _, err := fmt.Fprintln(p.out, pieces(l, p.width)); err != nil {
			return err
		}
	}
	method, _ := request.get("method")
	path, _ := request.get("path")
	if p.routes == nil {
		return nil
	}
	v := p.routes.route(plain(method), plain(path))
	if v == nil {
		return nil
	}
	lines := meanings(&value{kind: object, fields: v.members()}, name, body)
	if len(lines) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(p.out, "\n%s\n", p.bold(cut(name+", in words", p.width))); err != nil {
		return err
	}
	for _, l := range lines {
		if err := p.printEntry(l.name, l.text); err != nil {
			return err
		}
	}
	return nil
}

// members returns the fields of the body as properties.
func (v *verb) members() []property {
	out := make([]property, len(v.body))
	for i, f := range v.body {
		out[i] = property{f.name, f.required, f.value}
	}
	return out
}

// meanings returns explanations of all encoded values in v.
func meanings(is *value, name string, v jsontext.Value) []line {
	if text := meaning(is, name, v); text != "" {
		return []line{{name, text}}
	}
	var out []line
	switch {
	case v.Kind() == '{' && is.kind == object:
		var all members[jsontext.Value]
		if json.Unmarshal(v, &all) != nil {
			return nil
		}
		for _, m := range ordered(is, all) {
			out = append(out, meanings(&m.is, m.name, m.text)...)
		}
	case v.Kind() == '[' && is.kind == array:
		var list []jsontext.Value
		if json.Unmarshal(v, &list) != nil {
			return nil
		}
		for i, one := range list {
			for _, l := range meanings(is.of, fmt.Sprintf("%s[%d]", name, i), one) {
				if strings.HasPrefix(l.name, name+"[") {
					out = append(out, l)
				} else {
					out = append(out, line{fmt.Sprintf("%s[%d].%s", name, i, l.name), l.text})
				}
			}
		}
	}
	return out
}

// meaning explains one encoded value. It returns "" if the value needs no explanation.
func meaning(is *value, name string, v jsontext.Value) string {
	base, _, _ := strings.Cut(name, "[")
	switch {
	case is.name == "Stamp" && v.Kind() == '"':
		return stampInWords(base, plain(v))
	case (is.name == "Rights" || is.name == "AskedRights") && v.Kind() == '0':
		if n, err := strconv.ParseUint(string(v), 10, 8); err == nil {
			return rightsInWords(keyserver.Rights(n))
		}
	case is.refKind == refOperation:
		return operationNamed(plain(v))
	case is.name == "DecimalID":
		if n, err := strconv.ParseUint(plain(v), 10, 64); err == nil {
			return values.IDFromUint64(n).Hex() + ", in hexadecimal digits"
		}
	}
	return ""
}

func rightsInWords(asked keyserver.Rights) string {
	said := orNone(asked.Names())
	if asked == 0 {
		said = "none"
	}
	if held := asked.Widen(); held != asked {
		said += " (held as " + strings.Join(held.Names(), ", ") + ")"
	}
	return said
}

// stampInWords explains an encoded time. name shows whether the time is a start or an end.
func stampInWords(name, raw string) string {
	at, ok := stamped(raw)
	switch {
	case !ok:
		return "not a valid time"
	case at == "":
		return "unset, no bound"
	case strings.HasPrefix(name, "start"):
		return "from " + at
	case strings.HasPrefix(name, "end"):
		return "until " + at
	default:
		return at
	}
}

// stamped decodes an encoded time. at is "" if no time is set. ok is false if raw is not a time.
func stamped(raw string) (at string, ok bool) {
	text, err := base64.StdEncoding.DecodeString(raw)
	if err != nil || len(text) != 8 {
		return "", false
	}
	switch ms := binary.BigEndian.Uint64(text); {
	case ms == 0:
		return "", true
	case ms < 1<<52:
		return time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339), true
	default: // outside of the calendar's range
		return strconv.FormatUint(ms, 10) + " ms after 1970", true
	}
}

// operationNamed returns the name of an operation, or "" if this build does not know the id.
func operationNamed(id string) string {
	for _, op := range keyserver.Operations {
		if op.ID.Hex() == strings.ToLower(id) {
			return op.Name + " (" + op.Key + ")"
		}
	}
	return ""
}

// pieces breaks a line into parts of width characters. It loses nothing.
func pieces(l string, width int) string {
	var out []string
	rest := []rune(l)
	for ; len(rest) > width; rest = rest[width:] {
		out = append(out, string(rest[:width]))
	}
	return strings.Join(append(out, string(rest)), "\n")
}
