package ctl

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

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

func (o *options) printer(cmd *cobra.Command) *printer {
	out := cmd.OutOrStdout()
	return &printer{options: o, out: out, notes: cmd.ErrOrStderr(), width: width(out), color: colored(out)}
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

func hidden(r rune) bool { return r != '\n' && keyserver.Unprintable(r) }

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
