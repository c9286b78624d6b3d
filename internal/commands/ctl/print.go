package ctl

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
)

// widest is the maximum width of a table in characters.
const widest = 100

// width returns the width of the terminal, at most widest.
func width(out io.Writer) int {
	if f, ok := out.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return min(columns, widest)
		}
	}
	return widest
}

// colored reports whether to use colours: out is a terminal with colours, and NO_COLOR is not set.
func colored(out io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && program.IsTerminal(out)
}

// printer prints responses.
type printer struct {
	*options
	out    io.Writer
	notes  io.Writer // text that is not part of the response
	width  int
	color  bool
	behind bool      // a page was printed already
	rows   bool      // for rows of a follower instead of responses
	now    time.Time // lists show ages at this time; if zero, exact times
	chosen []column
}

func (o *options) printer(cmd *cobra.Command) *printer {
	out := cmd.OutOrStdout()
	return &printer{options: o, out: out, notes: cmd.ErrOrStderr(), width: width(out), color: colored(out), now: time.Now()}
}

// print prints a response.
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

// quoting returns the double-quoted style if s has invisible characters, because other YAML styles cannot escape them.
func quoting(s string) yaml.Style {
	if strings.ContainsFunc(s, hidden) {
		return yaml.DoubleQuotedStyle
	}
	return 0
}

// refused prints the reasons in an error response. In JSON and YAML it prints the entire response. As a table it prints
// a line for each bad row, if verdicts has the response. Otherwise it prints nothing, because the error has the reason.
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
		if err := p.printEntry("warning", plain(one)); err != nil {
			return err
		}
	}
	return nil
}

// bad prints a row if its member good is false.
func (p *printer) bad(say verdict, row jsontext.Value) error {
	var all members[jsontext.Value]
	_ = json.Unmarshal(row, &all) // a row that is not an object has no members
	if good, _ := all.get(say.good); good.Kind() != 'f' {
		return nil
	}
	name, _ := all.get(say.name)
	why, _ := all.get(say.why)
	text := plain(why)
	if again, ok := all.get(say.again); ok && again.Kind() == '0' {
		text += "; next attempt in " + plain(again) + " s"
	}
	return p.printEntry(plain(name), text)
}

// printEntry prints a name and a text. It wraps long text, but does not cut it.
func (p *printer) printEntry(name, said string) error {
	_, err := fmt.Fprintln(p.out, broken(printable(name)+": "+printable(said), p.width))
	return err
}

// elements returns the elements of the list in a member of a JSON object.
func elements(of jsontext.Value, member string) []jsontext.Value {
	var all members[jsontext.Value]
	var list []jsontext.Value
	if json.Unmarshal(of, &all) == nil {
		text, _ := all.get(member)
		_ = json.Unmarshal(text, &list) // if it is not a list, there are no elements
	}
	return list
}

// list prints rows of a follower.
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
		default: // one line for each row
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

// escaped replaces invisible characters in JSON text by JSON escapes. Such characters occur only inside strings.
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

// yaml prints a response as YAML and keeps the order of its members.
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
	text, err := escapeYAML(node)
	if err != nil {
		return err
	}
	_, err = p.out.Write(text)
	return err
}

// escapeYAML returns YAML text with escaped invisible characters. The encoder does not escape marks of text direction.
// node puts strings with such marks inside double quotes, in which escapes are valid.
func escapeYAML(n *yaml.Node) ([]byte, error) {
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

// node converts a JSON value to YAML. The encoder quotes strings that would otherwise be read as another type, such as
// an id that has only digits. Strings with invisible characters are double-quoted.
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
	default: // keep the value as it is
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

// more prints how to get the next page, unless the printed response has this information.
func (p *printer) more(next *pager, where string) {
	if where != "" && p.output == asTable && p.field == "" {
		fmt.Fprintf(p.notes, "there are more rows; continue with --%s %s, or use --all\n", next.field.flag, printable(where))
	}
}

// listed returns the schema and the rows of a listing. The operationId of a listing begins with
// list, find or lookUp. For any other verb it returns nil.
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
			_ = json.Unmarshal(list, &rows) // rows stays empty if there is no list
		}
		return f.of, rows
	}
	return nil, nil
}
