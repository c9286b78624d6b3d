package ctl

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// column is a column of a table.
type column struct {
	name   string
	is     value
	header string
	width  int
	now    time.Time // if set, the column shows times as ages
}

const (
	gap = 2 // between two columns
	// narrow is the minimum width to which a column of text can be cut, so that other columns fit.
	narrow = 16
)

// columnsOf prints rows as a table.
func (p *printer) columnsOf(of *value, rows []jsontext.Value) error {
	objects := make([]members[jsontext.Value], len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(row, &objects[i]); err != nil {
			return err
		}
	}
	if p.chosen == nil {
		p.chosen = p.choose(of, objects)
	}
	if !p.behind {
		cells := make([]string, len(p.chosen))
		for i, c := range p.chosen {
			cells[i] = c.header
		}
		if err := p.row(cells, true); err != nil {
			return err
		}
	}
	for _, o := range objects {
		cells := make([]string, len(p.chosen))
		for i, c := range p.chosen {
			if !c.now.IsZero() {
				c.now = p.now // a watched list prints rows later
			}
			cells[i] = c.text(o)
		}
		if err := p.row(cells, false); err != nil {
			return err
		}
	}
	return nil
}

func (p *printer) row(cells []string, header bool) error {
	var b strings.Builder
	for i, c := range cells {
		text := c
		if !p.rows || p.chosen[i].shortens() { // a later row can have a longer state, number or age
			text = cut(c, p.chosen[i].width)
		}
		if i < len(cells)-1 {
			text = pad(text, p.chosen[i].width) + strings.Repeat(" ", gap)
		}
		b.WriteString(text)
	}
	line := strings.TrimRight(b.String(), " ")
	if header {
		line = p.bold(line)
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

// choose returns the columns of a table: the columns of --columns in full width, or else the most useful columns that
// fit.
func (p *printer) choose(of *value, rows []members[jsontext.Value]) []column {
	if len(p.columns) > 0 {
		return p.asked(of, rows)
	}
	var chosen []column
	left := p.width
	for _, c := range candidatesFor(of) {
		if c.is.kind == instant && !slices.Contains(exact, of.name) {
			c.now, c.header = p.now, strings.TrimSuffix(c.header, " AT")
		}
		c.measure(rows, p.rows)
		if c.width == 0 { // no row has a value
			continue
		}
		if len(chosen) > 0 {
			left -= gap
		}
		least := min(c.width, max(narrow, utf8.RuneCountInString(c.header)))
		switch {
		case c.width <= left:
		case c.shortens() && least <= left:
			c.width = left
		case len(chosen) == 0: // the first column is always shown
			c.width = left
		default: // a narrower column may still fit
			left += gap
			continue
		}
		left -= c.width
		chosen = append(chosen, c)
	}
	return chosen
}

// asked returns the columns of --columns, whose names are already validated by showable.
func (p *printer) asked(of *value, rows []members[jsontext.Value]) []column {
	var chosen []column
	for _, name := range p.columns {
		at := slices.IndexFunc(of.fields, func(f property) bool { return f.name == name })
		if at < 0 {
			continue
		}
		c := newColumn(of.fields[at])
		c.measure(rows, p.rows)
		c.width = max(c.width, utf8.RuneCountInString(c.header))
		chosen = append(chosen, c)
	}
	return chosen
}

func newColumn(f property) column {
	words := strings.Split(dashed(f.name), "-")
	for i, w := range words {
		if known := upper[w]; known != "" {
			w = known
		}
		words[i] = strings.ToUpper(w)
	}
	return column{name: f.name, is: f.value, header: strings.Join(words, " ")}
}

// text returns the cell of a row.
func (c *column) text(row members[jsontext.Value]) string {
	v, _ := row.get(c.name)
	if at, err := time.Parse(time.RFC3339, plain(v)); err == nil && !c.now.IsZero() {
		return age(at.Sub(c.now))
	}
	return cell(&c.is, v)
}

// age returns the time until a point in time in the largest unit of which it has at least two: "in 5m", or "5m" if the
// point is in the past.
func age(until time.Duration) string {
	if until > 0 {
		return "in " + age(-until)
	}
	switch d := until.Abs(); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// roomy is the minimum width of a column of text if more rows follow later.
const roomy = 20

// measure sets the width of a column. If no row has a value, the width stays 0. more means that rows are added later.
func (c *column) measure(rows []members[jsontext.Value], more bool) {
	most := 0
	for _, row := range rows {
		most = max(most, utf8.RuneCountInString(c.text(row)))
	}
	if more && c.shortens() { // more rows follow
		most = max(most, roomy)
	}
	if most > 0 {
		c.width = max(most, utf8.RuneCountInString(c.header))
	}
}

// shortens reports whether a value can be cut. A cut identifier would be useless.
func (c *column) shortens() bool {
	return c.is.kind == array || c.is.kind == object || c.is.kind == text && c.is.name == "" && len(c.is.enum) == 0
}

// candidatesFor returns the columns of a schema, the most useful first: identifiers, names, states, and then the other
// members in their order.
func candidatesFor(of *value) []column {
	type ranked struct {
		column
		rank int
	}
	var all []ranked
	seen := map[string]bool{}
	listed := columns[of.name]
	for _, f := range of.fields {
		r := rank(f, seen)
		if at := slices.Index(listed, f.name); at >= 0 {
			r = at
		} else if listed != nil {
			r = never
		}
		if r != never {
			all = append(all, ranked{newColumn(f), r})
		}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return a.rank - b.rank })
	out := make([]column, len(all))
	for i, r := range all {
		out[i] = r.column
	}
	return out
}

// never is the rank of a member that is of no use in a table.
const never = -1

// rank returns how useful a member is in a table; 0 is the most useful.
func rank(f property, seen map[string]bool) int {
	identifies := map[string]bool{"HexID": true, "HiddenLink": true, "Base64ID": true, "IssuerDigest": true, "SystemID": true, "DecimalID": true}
	switch {
	case f.kind == free, f.bytes(), f.name == "detail":
		return never
	case f.name == "name", strings.HasSuffix(f.name, "Name"), f.name == "subject", f.name == "operation", f.name == "path":
		return 1
	case identifies[f.value.name] && !seen["id"]:
		seen["id"] = true
		return 0
	case f.value.name == "DecimalID" && seen["id"]: // the same id in decimal digits
		return 9
	case len(f.enum) > 0, f.name == "state", f.name == "kind", f.name == "mode":
		return 2
	case f.kind == instant, f.value.name == "Stamp":
		return 4
	case f.kind == boolean:
		return 5
	case f.kind == array:
		return 6
	case identifies[f.value.name]:
		return 7
	default:
		return 3
	}
}
