package sqldb

import (
	"context"
	"fmt"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/schema"
)

// schemaKind is a kind of object in a schema.
type schemaKind string

// The kinds of schema objects. Tables, indexes, triggers and foreign keys are listed for both databases, all other
// kinds only for PostgreSQL.
const (
	kindTable      schemaKind = "table"
	kindColumn     schemaKind = "column"
	kindConstraint schemaKind = "constraint"
	kindIndex      schemaKind = "index"
	KindReference  schemaKind = "foreign key" // foreign key from or to a table of this program
	kindTrigger    schemaKind = "trigger"
	kindRule       schemaKind = "rule"
	kindPolicy     schemaKind = "row security policy"
	kindChild      schemaKind = "child table"
	kindShadow     schemaKind = "name that hides it" // an object earlier in the search path with the name of a table
	kindFunction   schemaKind = "function or operator with the name of a built-in one"
	kindPath       schemaKind = "search path"
)

// intrusive are the kinds that no release creates on its tables. Each of them can hide or change
// the data that the key server reads and writes.
var intrusive = map[schemaKind]bool{
	kindTrigger: true, kindRule: true, kindPolicy: true, kindChild: true, kindShadow: true, kindFunction: true, kindPath: true,
}

// reliedKinds are the kinds of objects that the results of statements depend on. A difference in another kind, such as an
// index, can only make statements slower, or make the database accept or reject other writes.
var reliedKinds = map[schemaKind]bool{kindTable: true, kindColumn: true, KindReference: true}

// SchemaObject is one object in a schema that concerns the tables of this program.
type SchemaObject struct {
	Kind        schemaKind
	Table, Name string // name is empty for a table
	definition  string
}

func (o SchemaObject) key() SchemaObject {
	return SchemaObject{Kind: o.Kind, Table: o.Table, Name: o.Name}
}

// Line returns the line of an object in the embedded lists of package schema.
func (o SchemaObject) Line() string {
	return strings.Join([]string{string(o.Kind), o.Table, o.Name, o.definition}, "\t")
}

// String returns the kind and name of the object for messages.
func (o SchemaObject) String() string {
	switch {
	case o.Table == "":
		return fmt.Sprintf("%s %q", o.Kind, o.Name)
	case o.Name == "":
		return fmt.Sprintf("%s %q", o.Kind, o.Table)
	default:
		return fmt.Sprintf("%s %q of table %q", o.Kind, o.Name, o.Table)
	}
}

// SchemaFinding is a difference between the schema of a database and the schema that the
// migrations create.
type SchemaFinding struct {
	Text string // text for messages
	// Severe means that the difference can hide or change the data that the key server reads and writes. So no key
	// server opens the database.
	Severe bool
}

// schemaList reads an embedded list of schema objects. It also returns the names of its tables.
func schemaList(name string) (list []SchemaObject, tables []string, err error) {
	text, err := schema.Lists.ReadFile(name + ".txt")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		if len(part) != 4 {
			return nil, nil, fmt.Errorf("the embedded list of the schema has the line %q", line)
		}
		o := SchemaObject{schemaKind(part[0]), part[1], part[2], part[3]}
		list = append(list, o)
		if o.Kind == kindTable {
			tables = append(tables, o.Table)
		}
	}
	return list, tables, nil
}

// compareSchemas returns the differences between the schema of a database (is) and the schema of the migrations (want).
// newer means that a newer release may have changed the schema. Only intrusive objects are findings then.
func compareSchemas(want, is []SchemaObject, newer bool) (all []SchemaFinding) {
	wanted := map[SchemaObject]string{}
	for _, o := range want {
		wanted[o.key()] = o.definition
	}
	found := map[SchemaObject]bool{}
	for _, o := range is {
		found[o.key()] = true
		definition, known := wanted[o.key()]
		switch {
		case intrusive[o.Kind]:
			all = append(all, SchemaFinding{"the database has the " + o.String() + ", which no release creates", true})
		case newer, known && definition == o.definition:
		case known:
			all = append(all, SchemaFinding{"the " + o.String() + " differs from the one that the migrations create", reliedKinds[o.Kind]})
		default:
			all = append(all, SchemaFinding{"the database has the " + o.String() + ", which the migrations do not create", o.Kind == KindReference})
		}
	}
	for _, o := range want {
		if !newer && !found[o.key()] {
			all = append(all, SchemaFinding{"the " + o.String() + " is missing", reliedKinds[o.Kind]})
		}
	}
	return all
}

// CheckSchema returns how the schema of the database differs from the schema that the migrations
// of this program create.
func (h *Handle) CheckSchema(ctx context.Context) ([]SchemaFinding, error) {
	want, tables, err := schemaList(h.dialect.Name())
	if err != nil {
		return nil, err
	}
	is, err := h.dialect.SchemaOf(ctx, h.reading, tables)
	if err == nil && h.dialect.Shared() {
		err = h.checkFloor(ctx) // a newer release may have migrated the database
	}
	if err != nil {
		return nil, err
	}
	return compareSchemas(want, is, h.NewerWarning() != ""), nil
}

// Severe returns one sentence about the severe findings, or "" if there are none.
func Severe(findings []SchemaFinding) string {
	var first string
	n := 0
	for _, f := range findings {
		if f.Severe {
			if n++; n == 1 {
				first = f.Text
			}
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return first + "; find out who made this change, and undo it (docs/runbook.md)"
	default:
		return fmt.Sprintf("%s, and %d more such changes (doctor lists them); find out who made them, and undo them (docs/runbook.md)", first, n-1)
	}
}

// refuseSchema returns an error if the schema has severe differences. It logs all other differences.
func (h *Handle) refuseSchema(ctx context.Context) error {
	findings, err := h.CheckSchema(ctx)
	if err != nil {
		return fmt.Errorf("compare the schema of the database: %w", err)
	}
	if text := Severe(findings); text != "" {
		return Refuse(ErrUnusable, "%s", text)
	}
	for _, f := range findings {
		h.opts.Logger.WarnContext(ctx, "the schema of the database differs from the one that the migrations create", "difference", f.Text)
	}
	return nil
}

// ScanSchema collects the rows of a query for schema objects: kind, table, name, definition.
func ScanSchema(ctx context.Context, in Statements, text string, args ...any) (list []SchemaObject, err error) {
	err = in.Each(ctx, text, args, func(row Scanner) error {
		var o SchemaObject
		err := row.Scan(&o.Kind, &o.Table, &o.Name, &o.definition)
		o.definition = strings.Join(strings.Fields(o.definition), " ")
		if o.Table == VersionTable { // after a restore, objects of the version table keep this suffix in their names
			o.Name = strings.ReplaceAll(o.Name, "_"+RestoringSuffix, "")
			o.definition = strings.ReplaceAll(o.definition, "_"+RestoringSuffix, "")
		}
		list = append(list, o)
		return err
	})
	return list, err
}
