package ctl

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
)

// widest is the widest that a table becomes.
const widest = 100

// width is that of the terminal, up to widest.
func width(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return min(columns, widest)
		}
	}
	return widest
}

// colored reports whether to use colours: on a terminal that has them, unless the user
// wants none (NO_COLOR).
func colored(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// printer shows answers.
type printer struct {
	*options
	out    io.Writer
	notes  io.Writer // what is no part of the answer
	width  int
	color  bool
	behind bool // a page was printed before
	rows   bool // of a follower: rows and no answers
	chosen []column
}

// print shows an answer.
func (p *printer) print(v *verb, answer jsontext.Value) error {
	switch {
	case p.field != "":
		return p.member(v, answer)
	case p.output == asJSON:
		return p.json(answer)
	case p.output == asYAML:
		return p.yaml(answer)
	default:
		return p.table(v, answer)
	}
}

// quoting has what is hidden stand where it can be spelled out.
func quoting(s string) yaml.Style {
	if strings.ContainsFunc(s, hidden) {
		return yaml.DoubleQuotedStyle
	}
	return 0
}

// refused shows why, of an answer that came with a refusal: as it is, or to people what its
// list says of each row that is not good. Of many an answer the refusal itself is all.
func (p *printer) refused(v *verb, answer jsontext.Value) error {
	if p.output != asTable {
		return p.print(v, answer)
	}
	say, ok := verdicts[v.answer.name]
	if !ok || p.field != "" {
		return nil
	}
	for _, row := range elements(answer, say.list) {
		if err := p.bad(say, row); err != nil {
			return err
		}
	}
	for _, one := range elements(answer, say.also) {
		if err := p.hang("warning", plain(one)); err != nil {
			return err
		}
	}
	return nil
}

// bad shows one row of a verdict.
func (p *printer) bad(say verdict, row jsontext.Value) error {
	var all members[jsontext.Value]
	_ = json.Unmarshal(row, &all) // what is no object says nothing of itself
	if good, _ := all.get(say.good); good.Kind() != 'f' {
		return nil
	}
	name, _ := all.get(say.name)
	why, _ := all.get(say.why)
	text := plain(why)
	if again, ok := all.get(say.again); ok && again.Kind() == '0' {
		text += "; tried again in " + plain(again) + " s"
	}
	return p.hang(plain(name), text)
}

// hang shows a name, and behind it a text of which nothing is cut.
func (p *printer) hang(name, said string) error {
	_, err := fmt.Fprintln(p.out, broken(printable(name)+": "+printable(said), p.width))
	return err
}

// broken breaks a text into lines without losing anything of it: between words, else
// wherever a line is full.
func broken(said string, width int) string {
	lines := strings.Split(wrap(said, width), "\n")
	for i, l := range lines {
		lines[i] = pieces(l, width)
	}
	return strings.Join(lines, "\n")
}

// elements are those of a list that is a member.
func elements(of jsontext.Value, member string) []jsontext.Value {
	var all members[jsontext.Value]
	var list []jsontext.Value
	if json.Unmarshal(of, &all) == nil {
		text, _ := all.get(member)
		_ = json.Unmarshal(text, &list) // no list has no elements
	}
	return list
}

// list shows rows of a listing, of a follower.
func (p *printer) list(v *verb, rows []jsontext.Value) error {
	if len(rows) == 0 {
		return nil
	}
	if p.output == asTable && p.field == "" {
		of, _ := listed(v, nil)
		err := p.columnsOf(of, rows)
		p.behind = true
		return err
	}
	for _, row := range rows {
		var err error
		switch {
		case p.field != "":
			err = p.one(row)
		case p.output == asYAML:
			err = p.yaml(row)
		default: // one row, one line
			err = row.Compact()
			if err == nil {
				_, err = fmt.Fprintln(p.out, escaped(string(row)))
			}
		}
		if err != nil {
			return err
		}
		p.behind = true
	}
	return nil
}

func (p *printer) json(answer jsontext.Value) error {
	text := answer.Clone()
	if err := text.Indent(jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.out, escaped(string(text)))
	return err
}

// escaped spells what a terminal would act upon as JSON can; in a JSON text it stands
// within strings alone.
func escaped(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }

// yaml keeps the order of the answer.
func (p *printer) yaml(answer jsontext.Value) error {
	node, err := node(answer)
	if err != nil {
		return err
	}
	if p.behind {
		if _, err := io.WriteString(p.out, "---\n"); err != nil {
			return err
		}
	}
	text, err := spelledOut(node)
	if err != nil {
		return err
	}
	_, err = p.out.Write(text)
	return err
}

// spelledOut is YAML in which a terminal acts upon nothing: the encoder lets directions of
// text through, which stand within double quotes alone (node).
func spelledOut(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, r := range b.String() {
		switch {
		case !hidden(r):
			out.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08X`, r)
		default:
			fmt.Fprintf(&out, `\u%04X`, r)
		}
	}
	return out.Bytes(), nil
}

// node is a JSON value in YAML. The encoder quotes text that would be read as something
// else, such as an id of digits, and what a terminal would act upon.
func node(v jsontext.Value) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: plain(v)}
	switch v.Kind() {
	case '{':
		var all members[jsontext.Value]
		if err := json.Unmarshal(v, &all); err != nil {
			return nil, err
		}
		n = &yaml.Node{Kind: yaml.MappingNode}
		for _, m := range all {
			value, err := node(m.value)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: m.name, Style: quoting(m.name)}, value)
		}
	case '[':
		var list []jsontext.Value
		if err := json.Unmarshal(v, &list); err != nil {
			return nil, err
		}
		n = &yaml.Node{Kind: yaml.SequenceNode}
		for _, one := range list {
			value, err := node(one)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, value)
		}
	case '"':
		n.Tag, n.Style = "!!str", quoting(n.Value)
	default: // as it is spelled
	}
	return n, nil
}

func (v *value) has(name string) bool { return slices.Contains(v.names(), name) }

func (v *value) names() []string {
	var names []string
	for _, f := range v.fields {
		names = append(names, f.name)
	}
	return names
}

// more says that there is another page, where it is no part of what was printed.
func (p *printer) more(next *pager, where string) {
	if where != "" && p.output == asTable && p.field == "" {
		fmt.Fprintf(p.notes, "there is more: --%s %s, or --all\n", next.field.flag, printable(where))
	}
}

// listed finds the rows of a listing: of an answer that is about them, as its operation
// says. nil for any other.
func listed(v *verb, answer jsontext.Value) (*value, []jsontext.Value) {
	if !slices.ContainsFunc([]string{"list", "find", "lookUp"}, func(verb string) bool { return strings.HasPrefix(v.route.Name, verb) }) {
		return nil, nil
	}
	for i := range v.answer.fields {
		f := &v.answer.fields[i]
		if f.kind != array || f.of.kind != object {
			continue
		}
		var all members[jsontext.Value]
		var rows []jsontext.Value
		if answer != nil && json.Unmarshal(answer, &all) == nil {
			list, _ := all.get(f.name)
			_ = json.Unmarshal(list, &rows) // nil is empty
		}
		return f.of, rows
	}
	return nil, nil
}

// printable is one line that a terminal does not act upon.
func printable(s string) string { return strings.Map(visible, s) }

func visible(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}

// readable writes a text of many lines as printable has it.
func readable(to io.Writer) io.WriteCloser {
	return transform.NewWriter(to, runes.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return visible(r)
	}))
}

// table shows an answer to a person.
func (p *printer) table(v *verb, answer jsontext.Value) error {
	of, rows := listed(v, answer)
	if of != nil {
		if len(rows) == 0 && !p.behind {
			fmt.Fprintln(p.notes, "there are none")
			return nil
		}
		return p.columnsOf(of, rows)
	}
	var all members[jsontext.Value]
	if json.Unmarshal(answer, &all) != nil || v.answer.kind != object {
		return p.json(answer)
	}
	return p.record(&v.answer, all)
}

// line is one member of a record.
type line struct{ name, text string }

// record shows an object: a line for each member, and a table for each list of objects.
func (p *printer) record(of *value, all members[jsontext.Value]) error {
	var lines []line
	var tables []func() error
	var walk func(prefix string, of *value, all members[jsontext.Value])
	walk = func(prefix string, of *value, all members[jsontext.Value]) {
		for _, m := range ordered(of, all) {
			var inner members[jsontext.Value]
			is := &m.is
			switch {
			case is.name == "JSON" && m.text.Kind() == '{':
				tables = append(tables, func() error { return p.sent(prefix+m.name, all, m.text) })
			case is.kind == object && m.text.Kind() == '{' && json.Unmarshal(m.text, &inner) == nil:
				walk(prefix+m.name+".", is, inner)
			case is.kind == array && is.of.kind == object:
				var rows []jsontext.Value
				if json.Unmarshal(m.text, &rows) == nil && len(rows) > 0 {
					tables = append(tables, func() error { return p.below(prefix+m.name, is.of, rows) })
				}
			default:
				if text := cell(is, m.text); text != "" {
					lines = append(lines, line{prefix + m.name, text})
				}
			}
		}
	}
	walk("", of, all)
	names := 0
	for _, l := range lines {
		names = max(names, utf8.RuneCountInString(l.name))
	}
	names = min(names, p.width/2)
	for _, l := range lines {
		rest := max(p.width-names-2, 10)
		for i, part := range strings.Split(fold(l.text, rest), "\n") {
			name := l.name
			if i > 0 {
				name = ""
			}
			if _, err := fmt.Fprintf(p.out, "%s  %s\n", p.bold(pad(cut(name, names), names)), part); err != nil {
				return err
			}
		}
	}
	for i, show := range tables {
		if i > 0 || len(lines) > 0 {
			fmt.Fprintln(p.out)
		}
		if err := show(); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) below(title string, of *value, rows []jsontext.Value) error {
	if _, err := fmt.Fprintln(p.out, p.bold(cut(title, p.width))); err != nil {
		return err
	}
	under := *p
	under.options = &options{output: asTable}
	under.behind, under.chosen = false, nil
	return under.columnsOf(of, rows)
}

// found is a member with its schema.
type found struct {
	name string
	is   value
	text jsontext.Value
}

// ordered are the members in the order of the schema; what that lacks is behind.
func ordered(of *value, all members[jsontext.Value]) []found {
	var out []found
	for _, f := range of.fields {
		if text, ok := all.get(f.name); ok {
			out = append(out, found{f.name, f.value, text})
		}
	}
	for _, m := range all {
		if !of.has(m.name) {
			out = append(out, found{printable(m.name), value{kind: free}, m.value})
		}
	}
	return out
}

// fold breaks a text into lines: between words, and what is no words is cut, because half
// of it on each line could not be copied; --field has the whole.
func fold(text string, width int) string {
	lines := strings.Split(wrap(text, width), "\n")
	for i, l := range lines {
		lines[i] = cut(l, width)
	}
	return strings.Join(lines, "\n")
}

func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:max(width-1, 0)]) + "…"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

func (p *printer) bold(s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\x1b[1m" + s + "\x1b[0m"
}

// cell is the text of a value in one line; empty for what says nothing.
func cell(is *value, v jsontext.Value) string {
	switch v.Kind() {
	case 'n', 0:
		return ""
	case '"':
		return printable(spoken(is, plain(v)))
	case '[':
		var list []jsontext.Value
		if json.Unmarshal(v, &list) != nil {
			return ""
		}
		of := is.of
		if of == nil {
			of = &value{kind: free}
		}
		texts := make([]string, 0, len(list))
		for _, one := range list {
			texts = append(texts, cell(of, one))
		}
		return strings.Join(texts, ", ")
	case '{':
		return called(is, v)
	default:
		return printable(string(v))
	}
}

// called is an object in one cell: what it is called, else its members.
func called(is *value, v jsontext.Value) string {
	var all members[jsontext.Value]
	if json.Unmarshal(v, &all) != nil {
		return ""
	}
	if name, ok := all.get("name"); ok && name.Kind() == '"' {
		return printable(plain(name))
	}
	var parts []string
	for _, m := range ordered(is, all) {
		if text := cell(&m.is, m.text); text != "" {
			parts = append(parts, m.name+"="+text)
		}
	}
	return strings.Join(parts, " ")
}

// spoken is a text as people read it.
func spoken(is *value, s string) string {
	switch {
	case is.kind == instant:
		if at, err := time.Parse(time.RFC3339, s); err == nil {
			return at.UTC().Format(time.RFC3339)
		}
	case is.stands == anOperation:
		if i := slices.IndexFunc(keyserver.Operations, func(op keyserver.Operation) bool { return op.ID.Hex() == s }); i >= 0 {
			return keyserver.Operations[i].Name
		}
	case is.name == "Stamp":
		if at, ok := stamped(s); ok {
			return at
		}
	}
	return s
}
