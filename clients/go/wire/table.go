package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// Kind is the shape of a value on the wire.
type Kind int

// The kinds.
const (
	Text    Kind = iota // a string in a fixed form, or free text
	Integer             // a JSON integer
	Boolean
	Time   // an RFC 3339 string
	Array  // of Elem
	Object // of Members
	Either // DecimalID and Rights, which have two JSON types
	Map    // of Elem, with arbitrary names; only in responses
	Any    // an object that is not interpreted
)

// Value describes the valid values of a field or an element.
type Value struct {
	Kind   Kind
	Type   reflect.Type // without pointers
	Scalar *Scalar      // the named wire type, or nil
	Min    *int64       // limit of the number, the characters or the decoded bytes
	Max    *int64
	MinLen int // of an array
	MaxLen int // -1 is unlimited
	Enum   []string

	EnumName string // of an enumeration with several values
	Trim     bool   // of a text: remove white space around it
	Elem     *Value
	Members  *Table
}

// Field is a member of a body, a query parameter or a path segment.
type Field struct {
	Name      string
	Doc       string
	Required  bool
	Nullable  bool
	Blank     bool   // of a query parameter: ignore empty values
	Rest      bool   // of a path segment: it is the rest of the path and may contain slashes
	Exclusive bool   // excludes other fields, so examples omit it
	Names     string // the kind of object that a value names (tag names of package schema)
	Secret    bool   // only the caller and the key server may see it
	Value     Value
	index     []int
	pointer   bool
}

// Table describes a request or response type.
type Table struct {
	Type   reflect.Type
	Body   []Field
	Path   []Field
	Query  []Field
	byName map[string]int
	known  string // the members' names, for refusals
}

var tables sync.Map // of *Table by reflect.Type

// Of returns the table of type t, which must be a struct. It panics if a tag is invalid,
// so that the program fails when it starts.
func Of(t reflect.Type) *Table {
	if known, ok := tables.Load(t); ok {
		return known.(*Table) //nolint:errcheck // the map holds nothing else
	}
	table := &Table{Type: t, byName: map[string]int{}}
	table.add(t, nil)
	names := make([]string, len(table.Body))
	for i, f := range table.Body {
		table.byName[f.Name] = i
		names[i] = f.Name
	}
	table.known = strings.Join(names, ", ")
	for _, f := range slices.Concat(table.Path, table.Query) {
		if len(table.Body) > 0 && t.FieldByIndex(f.index).Tag.Get("json") != "-" {
			panic(fmt.Sprintf("wire: %s of %s would also be a member of the body; give it json:\"-\"", f.Name, t))
		}
	}
	if len(table.Body) > maxMembers {
		panic(fmt.Sprintf("wire: %s has more than %d members", t, maxMembers))
	}
	tables.Store(t, table)
	return table
}

// NeedsBody reports whether a request must have a body. An empty body means the same as a body without members.
func (t *Table) NeedsBody() bool {
	return slices.ContainsFunc(t.Body, func(f Field) bool { return f.Required })
}

// maxMembers is the capacity of the set of members in decode.
const maxMembers = 64

func (t *Table) add(typ reflect.Type, at []int) {
	for i := range typ.NumField() {
		sf := typ.Field(i)
		index := append(append([]int{}, at...), i)
		if sf.Anonymous && sf.Type.Kind() == reflect.Struct {
			t.add(sf.Type, index)
			continue
		}
		if !sf.IsExported() {
			continue
		}
		f := Field{Doc: sf.Tag.Get("doc"), Exclusive: sf.Tag.Get("example") == "-", Names: sf.Tag.Get("names"), index: index, pointer: sf.Type.Kind() == reflect.Pointer}
		f.Value = valueOf(sf.Type, sf.Tag)
		f.Secret = f.Value.Scalar != nil && f.Value.Scalar.Secret || sf.Tag.Get("secret") == "true"
		switch {
		case sf.Tag.Get("path") != "":
			name, options, _ := strings.Cut(sf.Tag.Get("path"), ",")
			f.Name, f.Required, f.Rest = name, true, options == "rest"
			t.Path = append(t.Path, f)
		case sf.Tag.Get("query") != "":
			name, options, _ := strings.Cut(sf.Tag.Get("query"), ",")
			f.Name, f.Required, f.Blank = name, options == "required", options == "blank"
			t.Query = append(t.Query, f)
		default:
			name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				panic(fmt.Sprintf("wire: %s.%s has no name", typ, sf.Name))
			}
			f.Name, f.Required = name, options == ""
			f.Nullable = f.Required && f.pointer
			t.Body = append(t.Body, f)
		}
	}
}

func valueOf(t reflect.Type, tag reflect.StructTag) Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	v := Value{Type: t, MaxLen: -1, Trim: tag.Get("trim") == "true"}
	if only := tag.Get("const"); only != "" {
		v.Enum = []string{only}
	}
	if v.EnumName = tag.Get("enum"); v.EnumName != "" {
		allowed, known := enums[v.EnumName]
		if !known {
			panic("wire: there is no enumeration " + v.EnumName)
		}
		v.Enum = allowed
	}
	v.Min, v.Max = bounds(tag.Get("limit"))
	switch s := scalarOf(t); {
	case s != nil:
		v.Scalar, v.Kind = s, s.Kind
	case t == reflect.TypeFor[time.Time]():
		v.Kind = Time
	default:
		v.structure(t, tag)
	}
	return v
}

func (v *Value) structure(t reflect.Type, tag reflect.StructTag) {
	switch t.Kind() {
	case reflect.String:
		v.Kind = Text
	case reflect.Bool:
		v.Kind = Boolean
	case reflect.Int, reflect.Int64:
		v.Kind = Integer
	case reflect.Slice:
		v.Kind = Array
		elem := valueOf(t.Elem(), tag) // limits and enum apply to an element
		v.Elem, v.Enum, v.EnumName, v.Min, v.Max = &elem, nil, "", nil, nil
		if low, high := bounds(tag.Get("items")); high != nil {
			v.MaxLen = int(*high)
			if low != nil {
				v.MinLen = int(*low)
			}
		}
	case reflect.Map:
		elem := valueOf(t.Elem(), "")
		v.Kind, v.Elem = Map, &elem
	case reflect.Struct:
		v.Kind, v.Members = Object, Of(t)
	default:
		panic(fmt.Sprintf("wire: %s has no wire form", t))
	}
}

// bounds parses "low..high". Either number may be omitted.
func bounds(tag string) (low, high *int64) {
	if tag == "" {
		return nil, nil
	}
	l, h, ok := strings.Cut(tag, "..")
	if !ok {
		panic("wire: a limit is low..high, not " + tag)
	}
	return limit(l), limit(h)
}

func limit(s string) *int64 {
	if s == "" {
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("wire: a limit must be a number, not " + s)
	}
	return &n
}

// Scalar describes a named wire type for the decoder, the reference and the tests.
type Scalar struct {
	Kind          Kind
	Schema        Schema
	RequestSchema *Schema            // schema in requests, if they allow more spellings
	RequestParts  map[string]*Schema // schemas that RequestSchema refers to
	Example       string             // a valid JSON text
	Bad           []string           // invalid JSON texts of the right type
	Secret        bool
	Binary        bool // limits apply to the decoded bytes
}

func scalarOf(t reflect.Type) *Scalar { return scalars[t] }

const (
	base64Pattern = `^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$`
	maxLinkText   = 88 // characters of the base64 of a hidden link of 64 bytes
)

// badBase64 are invalid spellings of 8 or more bytes that some decoders accept.
var badBase64 = []string{
	`"AAAAAAAAAQ"`, `"AAAAAAAAAQ="`, `"AAAAAAAAAQ==="`, `"AAAAAAAAAR=="`, `"AAAA\r\nAAAAAQ=="`,
	`"AAAAAAAAAQ==\n"`, `"AAAA AAAAAQ=="`, `" AAAAAAAAAQ=="`, `"______8AAAQ="`, `"AA==AAAAAAAA"`, `"AAAAAAAAAQ*="`,
}

var scalars = map[reflect.Type]*Scalar{
	reflect.TypeFor[schema.Base64](): {
		Kind: Text, Binary: true, Example: `"AAAAAAAAAAE="`, Bad: badBase64,
		Schema: Schema{
			Type: "string", ContentEncoding: "base64", Pattern: base64Pattern,
			Description: "Bytes in canonical base64 (RFC 4648 section 4): padded, the standard alphabet, no line breaks, no stray bits.",
		},
	},
	reflect.TypeFor[schema.DER](): {
		Kind: Text, Binary: true, Example: `"AAAAAAAAAAE="`,
		Bad:    append([]string{`"-----BEGIN X-----\n-----END X-----\n"`, `"-----BEGIN X-----\nAAAA\n-----END X-----\n-----BEGIN X-----\nAAAA\n-----END X-----\n"`}, badBase64...),
		Schema: Schema{Type: "string", Description: "One ASN.1 object: canonical base64 of its DER, or one PEM block."},
	},
	reflect.TypeFor[schema.IssuerDigest](): {
		Kind: Text, Example: `"` + strings.Repeat("AB", 32) + `"`,
		Bad: []string{`"AB"`, `"` + strings.Repeat("G", 64) + `"`, `"` + strings.Repeat("A", 65) + `"`, `"AAAAAAAAA+k="`},
		Schema: Schema{
			Type: "string", Pattern: `^(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{96})$`,
			Description: "Digest that names a CA in the revocation routes: SHA-256 of its certificate in hexadecimal, or SHA-384 if its key is EC with 384 bits or more.",
		},
	},
	reflect.TypeFor[schema.IPAddress](): {
		Kind: Text, Example: `"192.0.2.1"`,
		Bad:    []string{`"nonsense"`, `"192.0.2.1:80"`, `"192.0.2"`, `"[::1]"`, `"192.0.2.0/24"`},
		Schema: Schema{Type: "string", Description: "IPv4 or IPv6 address, without a port."},
	},
	reflect.TypeFor[schema.OperationKey](): {
		Kind: Text, Example: `"hmacData"`,
		Bad:    []string{`"nonsense"`, `"HMAC Data"`, `"HmacData"`, `"hmacData "`, `"0000000000000304"`},
		Schema: Schema{Type: "string", Description: "Operation from GET /api/operations, by its key in the audit log, for instance hmacData."},
	},
	reflect.TypeFor[schema.Recipient](): {
		Kind: Text, Example: `"age19f7s6zn4nl49zxcfgxkd8j5f08uxrrxkshk6zfq740h0mj427essu9kra6"`,
		Bad:    []string{`"nonsense"`, `"age1"`, `"AGE-SECRET-KEY-1"`, `"age1\nage1"`, `"age1 t7rxyev2z3"`},
		Schema: Schema{Type: "string", Pattern: "^age1[a-z0-9]+$", Description: "Recipient of age, as age-keygen -y prints it."},
	},
	reflect.TypeFor[schema.Secret](): {
		Kind: Text, Secret: true, Example: `"a long passphrase"`,
		Schema: Schema{Type: "string", Format: "password", Description: "Secret text. Logs and messages do not contain it."},
	},
	reflect.TypeFor[schema.JSON](): {
		Kind: Any, Example: `{}`, Bad: []string{`{"a":1,"a":2}`, `{"a":9007199254740993}`, `{"a":"\ud800"}`},
		Schema: Schema{
			Type: "object", Description: "Object of another route. Names are unique, and integers are within 2^53-1. The service returns it in the form of RFC 8785.",
		},
	},
	reflect.TypeFor[schema.SHA256](): {
		Kind: Text, Example: `"` + strings.Repeat("ab", 32) + `"`,
		Bad:    []string{`"ab"`, `"` + strings.Repeat("g", 64) + `"`, `"` + strings.Repeat("a", 63) + `"`, `"` + strings.Repeat("ab", 33) + `"`},
		Schema: Schema{Type: "string", Pattern: `^[0-9a-fA-F]{64}$`, Description: "SHA-256 digest in 64 hexadecimal digits. A request may use either case; a response uses lower case."},
	},
	reflect.TypeFor[schema.RowNumber](): {
		Kind: Integer, Example: `1`, Bad: []string{`0`, `-1`, `01`, `+1`, `1.0`, `1e0`, `9007199254740993`},
		Schema: Schema{Type: "integer", Minimum: new(int64(1)), Maximum: new(int64(schema.MaxExactInteger)), Description: "Position of a row in the audit log, over all chains."},
	},
	reflect.TypeFor[schema.TreeLevel](): {
		Kind: Integer, Example: `0`, Bad: []string{`-1`, `64`, `+1`, `1.0`, `data`},
		Schema: Schema{Type: "integer", Minimum: new(int64(0)), Maximum: new(int64(63)), Description: "Level of tiles. Each level has the root hashes of the tiles below it."},
	},
	reflect.TypeFor[schema.TilePlace](): {
		Kind: Text, Example: `"000.p/1"`,
		Bad: []string{
			`"67"`, `"1067"`, `"x001"`, `"x001/67"`, `"001/067"`, `"x000/067"`, `"x001//067"`, `"x001/067/"`, `"/067"`, `"067.p"`, `"067.p/"`, `"067.p/0"`,
			`"067.p/08"`, `"067.p/256"`, `"067.p/+8"`, `"x999/x999/x999/x999/x999/x999/x999/999"`, `"0/067"`, `"-01"`,
		},
		Schema: Schema{
			Type: "string", Pattern: `^(?:x[0-9]{3}/)*[0-9]{3}(?:\.p/[1-9][0-9]{0,2})?$`, MaxLength: new(int64(64)),
			Description: "Tile in its level, in the format of C2SP tlog-tiles: x001/067 is tile 1067, 067.p/8 is the first 8 hashes of tile 67.",
		},
	},
	reflect.TypeFor[schema.RequestPath](): {
		Kind: Text, Example: `"/api/roles"`,
		Bad:    []string{`"api/roles"`, `"/"`, `"https://key.example/api/roles"`, `"/api/roles#a"`, `"/api/ro les"`, `"/api/r\u00f6les"`, `"/api/roles\n"`, `"/api/` + strings.Repeat("a", 1024) + `"`},
		Schema: Schema{Type: "string", Pattern: `^/api/[!-"$-~]*$`, MaxLength: new(int64(1024)), Description: "Path of another route, with its query if it has one."},
	},
	reflect.TypeFor[schema.HexID](): {
		Kind: Text, Example: `"00000000000003e9"`,
		Bad: []string{`"3e9"`, `"00000000000003eg"`, `"0x000000000003e9"`, `"00000000000003e900"`, `"AAAAAAAAA+k="`},
		Schema: Schema{
			Type: "string", Pattern: `^[0-9a-fA-F]{16}$`,
			Description: "Identifier of 8 bytes in 16 hexadecimal digits. A request may use either case; a response uses lower case.",
		},
	},
	reflect.TypeFor[schema.DecimalID](): {
		Kind: Either, Example: `"1001"`,
		Bad: []string{`-1`, `1.0`, `1e3`, `9007199254740993`, `"01001"`, `"-1"`, `"+1"`, `"1 "`, `"18446744073709551616"`, `"00000000000003e9"`},
		Schema: Schema{
			Type: "string", Pattern: `^(?:0|[1-9][0-9]{0,19})$`,
			Description: "The 8 bytes of a principal's id as a big-endian number, in decimal. A request may also contain a JSON integer up to 2^53; a response always contains the string.",
		},
	},
	reflect.TypeFor[schema.Base64ID](): {
		Kind: Text, Example: `"AAAAAAAAA+k="`,
		Bad: append([]string{`"00000000000003e9"`, `"AAAAAAAD6Q=="`, `"AAAAAAAAAAAD6Q=="`, `"AAAAAAAAA+l="`}, badBase64...),
		Schema: Schema{
			Type: "string", ContentEncoding: "base64", Pattern: `^[A-Za-z0-9+/]{10}[AEIMQUYcgkosw048]=$`,
			Description: "Identifier of 8 bytes in canonical base64.",
		},
	},
	reflect.TypeFor[schema.SystemID](): {
		Kind: Integer, Example: `1`, Bad: []string{`-1`, `4294967296`, `1.0`, `1e0`},
		Schema: Schema{Type: "integer", Minimum: new(int64(0)), Maximum: new(int64(1<<32 - 1)), Description: "Number of a key server, for instance of the owner of a principal or a key."},
	},
	reflect.TypeFor[schema.HiddenLink](): {
		Kind: Text, Example: `"AAAAAQAAAAAAAAPp"`, Bad: append([]string{`"` + strings.Repeat("AAAA", 22) + `"`}, badBase64...),
		Schema: Schema{
			Type: "string", ContentEncoding: "base64", Pattern: base64Pattern, MinLength: new(int64(4)), MaxLength: new(int64(maxLinkText)),
			Description: "The only identifier of a key: 1 to 64 opaque bytes in canonical base64.",
		},
	},
	reflect.TypeFor[schema.ResourceID](): {
		Kind: Text, Example: `"AAAAAQAAAAAAAAPp"`, Bad: append([]string{`"9"`}, badBase64...),
		Schema: Schema{
			Type: "string", Pattern: base64Pattern, MinLength: new(int64(4)), MaxLength: new(int64(maxLinkText)),
			Description: "Hidden link of a key, or self. self is also valid base64; the type of the resource distinguishes them.",
		},
	},
	reflect.TypeFor[schema.Rights](): {
		Kind: Either, Example: `3`, Bad: []string{`-1`, `32`, `1.0`, `["read"]`, `["READ","ALL"]`, `[1]`, `[null]`},
		Schema: Schema{Type: "integer", Minimum: new(int64(0)), Maximum: new(int64(values.AllRights)), Description: aboutRights()},
		RequestSchema: &Schema{
			Description: "Requested rights: the bitmask, or the names of its bits.",
			OneOf:       []*Schema{Reference("Rights"), Reference("RightNames")},
		},
		RequestParts: map[string]*Schema{
			"RightName":  enumeration("RightName"),
			"RightNames": {Type: "array", Items: Reference("RightName"), Description: "Names of the bits of Rights."},
		},
	},
	reflect.TypeFor[schema.Stamp](): {
		Kind: Text, Example: `"AAABl7DtSAA="`, Bad: append([]string{`"AAAAAAAAAQ=="`, `"AAAAAAAAAAAAAAAA"`}, badBase64...),
		Schema: Schema{
			Type: "string", ContentEncoding: "base64", Pattern: `^[A-Za-z0-9+/]{10}[AEIMQUYcgkosw048]=$`,
			Description: "Raw time: 8 bytes in canonical base64, the milliseconds since 1970 in UTC as a big-endian unsigned number. All zero, AAAAAAAAAAA=, means unset: no limit.",
		},
	},
	reflect.TypeFor[schema.TrustBlob](): {
		Kind: Text, Example: `"7\tpeer.example.com\t9443\tMAA="`,
		Bad: []string{
			`"7 peer.example.com 9443 MAA="`, `"7\tpeer.example.com\t9443"`, `"7\tpeer.example.com\t9443\tMAA=\t"`, `"7\tpeer.example.com\t9443\tMAA=\n"`,
			`"\tpeer.example.com\t9443\tMAA="`, `"-7\tpeer.example.com\t9443\tMAA="`, `"07\tpeer.example.com\t9443\tMAA="`, `"4294967296\tpeer.example.com\t9443\tMAA="`,
			`"0000000000000007\tpeer.example.com\t9443\tMAA="`, `"7\t\t9443\tMAA="`, `"7\tpeer example\t9443\tMAA="`, `"7\tpeer/x\t9443\tMAA="`, `"7\tpeer:1\t9443\tMAA="`,
			`"7\tpeer.example.com\t\tMAA="`, `"7\tpeer.example.com\t0\tMAA="`, `"7\tpeer.example.com\t65536\tMAA="`, `"7\tpeer.example.com\t+443\tMAA="`,
			`"7\tpeer.example.com\t9443\t"`, `"7\tpeer.example.com\t9443\tMAA"`, `"7\tpeer.example.com\t9443\tMAB="`, `"7\tpeer.example.com\t9443\tMA\nA="`,
		},
		Schema: Schema{
			Type: "string", MaxLength: new(int64(values.MaxTrustBlob)), Pattern: `^[0-9]{1,10}\t[0-9A-Za-z_.:-]{1,253}\t[0-9]{1,5}\t[A-Za-z0-9+/]+={0,2}$`,
			Description: "Data that registers a key server with another: system id, server name, port of the external listener and base64 of the PKCS#7 chain, separated by tabs.",
		},
	},
}

// aboutRights describes each bit of Rights.
func aboutRights() string {
	var bits []string
	for r := values.Rights(1); r <= values.AllRights; r <<= 1 {
		bits = append(bits, fmt.Sprintf("%d %s", r, strings.Join(r.Names(), "")))
	}
	return "Bitmask of rights over a key: " + strings.Join(bits, ", ") + ". READ allows using the key and reading its ACL, " +
		"OWNER changing the ACL and exporting the key, WRITE changing an ACL template. " +
		"An entry with MANDATORY_GROUP or HOST_MATRIX denies the key to principals that are not in its group. " +
		"The key server adds implied rights: WRITE adds READ, OWNER adds both. Test with a mask, never for equality."
}
