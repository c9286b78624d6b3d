package wire

import (
	"encoding"
	stdjson "encoding/json"
	"errors"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// everything has a field of each kind.
type everything struct {
	Text    string            `json:"text" limit:"1..8"`
	Choice  string            `json:"choice,omitzero" enum:"KeyAlgorithm"`
	Secret  schema.Secret     `json:"secret,omitzero" limit:"8..16"`
	Number  *int64            `json:"number,omitzero" limit:"-1..100"`
	Flag    *bool             `json:"flag,omitzero"`
	At      time.Time         `json:"at,omitzero"`
	Bytes   *schema.Base64    `json:"bytes,omitzero" limit:"1..4"`
	Link    schema.HiddenLink `json:"link,omitzero"`
	Decimal *schema.DecimalID `json:"decimal,omitzero"`
	System  *schema.SystemID  `json:"system,omitzero"`
	Rights  *schema.Rights    `json:"rights,omitzero"`
	List    []schema.HexID    `json:"list,omitzero" items:"1..3"`
	Nested  []inner           `json:"nested,omitzero" items:"0..4"`
	Null    *string           `json:"null"`
}

type inner struct {
	Name string `json:"name" limit:"1..8"`
	N    int    `json:"n,omitzero"`
}

func decode(text string) (everything, error) {
	var out everything
	err := Of(reflect.TypeFor[everything]()).DecodeBody([]byte(text), &out)
	return out, err
}

func refused(err error) bool {
	var f *FieldError
	return errors.As(err, &f) && f.Field != "" && f.Problem != ""
}

// A refusal has the path of the field and says what to do.
func TestRefusalsName(t *testing.T) {
	cases := map[string]struct{ body, want string }{
		"Missing":           {`{"null":null}`, "text: is missing; send a string"},
		"MissingNullable":   {`{"text":"a"}`, "null: is missing; send a string"},
		"Null":              {`{"text":null,"null":null}`, "text: must not be null; send a string"},
		"NullOptional":      {`{"number":null}`, "number: must not be null; leave it out, or send an integer from -1 to 100"},
		"Unknown":           {`{"texts":"a"}`, `"texts": is not a member of this request; the members are text, choice,`},
		"UnknownPrintable":  {"{\"\\u001b[31m\":1}", `"?[31m": is not a member`},
		"Twice":             {`{"text":"a","text":"a"}`, "text: is sent twice; send it once"},
		"TwiceEscaped":      {`{"text":"a","t\u0065xt":"a"}`, "text: is sent twice"},
		"Nested":            {`{"nested":[{"name":"a"},{"name":1}]}`, "nested[1].name: must be a string"},
		"NestedMissing":     {`{"nested":[{}]}`, "nested[0].name: is missing"},
		"NestedUnknown":     {`{"nested":[{"x":1}]}`, `nested[0]."x": is not a member`},
		"NestedTwice":       {`{"nested":[{"name":"a","name":"a"}]}`, "nested[0].name: is sent twice"},
		"Element":           {`{"list":["0000000000000001","1"]}`, "list[1]: must be 16 hexadecimal digits"},
		"ElementNull":       {`{"list":[null]}`, "list[0]: must not be null"},
		"TooFew":            {`{"list":[]}`, "list: must have at least 1 elements"},
		"TooMany":           {`{"nested":[{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"}]}`, "nested: must have at most 4 elements"},
		"TooLong":           {`{"text":"123456789"}`, "text: must have at most 8 characters"},
		"TooShort":          {`{"secret":"1234567"}`, "secret: must have at least 8 characters"},
		"Empty":             {`{"text":""}`, "text: must not be empty"},
		"OutOfRange":        {`{"number":101}`, "number: must be an integer from -1 to 100"},
		"FarOutOfRange":     {`{"number":1` + strings.Repeat("0", 40) + `}`, "number: must be an integer from -1 to 100"},
		"Fraction":          {`{"number":1.0}`, "number: must be an integer without fraction"},
		"Choice":            {`{"choice":"c"}`, "choice: must be one of HMAC-SHA384, AES-256"},
		"TooManyBytes":      {`{"bytes":"AAAAAAAA"}`, "bytes: must encode at most 4 bytes"},
		"NoBytes":           {`{"bytes":""}`, "bytes: must not be empty"},
		"Time":              {`{"at":"yesterday"}`, "at: must be an RFC 3339 time"},
		"Malformed":         {`{"text":"a"x`, "body: is not valid JSON near byte 11"},
		"MalformedInMember": {`{"nested":[{"name":x}]}`, "nested[0].name: is not valid JSON near byte"},
		"Trailing":          {`{"text":"a","null":null} {}`, "body: has data after the JSON object"},
		"NotAnObject":       {`[]`, "body: must be a JSON object"},
		"Nothing":           {" \n", "body: is empty; send a JSON object with text, choice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := decode(tc.body)
			if !refused(err) || !strings.HasPrefix(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A refusal never contains a value of the request.
func TestRefusalsKeepValuesToThemselves(t *testing.T) {
	for _, field := range Of(reflect.TypeFor[everything]()).Body {
		for _, value := range []string{`"hunter2 hunter2 hunter2"`, `{"hunter2":1}`, `["hunter2"]`, `hunter2`, `"hunter2`} {
			if _, err := decode(`{"` + field.Name + `":` + value + `}`); err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", field.Name, err)
			}
		}
	}
}

func TestDeepNestingIsRefused(t *testing.T) {
	for _, body := range []string{
		strings.Repeat("[", 100_000), `{"nested":` + strings.Repeat("[", 100_000), `{"rights":` + strings.Repeat("[", 100_000),
		`{"decimal":` + strings.Repeat(`{"a":`, 50_000),
	} {
		if _, err := decode(body); !refused(err) {
			t.Errorf("%.20s: %v", body, err)
		}
	}
}

// A value that is encoded and decoded stays the same.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := everything{
			Text: rapid.StringMatching(`[ -~äß€😀]{1,8}`).Draw(t, "text"),
			Link: schema.HiddenLink(rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "link")),
		}
		if rapid.Bool().Draw(t, "more") {
			n, d, s, r := rapid.Int64Range(-1, 100).Draw(t, "n"), schema.DecimalID(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "d")), schema.SystemID(rapid.Uint32().Draw(t, "s")), schema.Rights(rapid.Uint32Range(0, 31).Draw(t, "r"))
			b := schema.Base64(rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "b"))
			in.Number, in.Decimal, in.System, in.Rights, in.Bytes = &n, &d, &s, &r, &b
			in.List = []schema.HexID{schema.HexID(d)}
			in.At = time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), 5).UTC()
			in.Nested = []inner{{Name: "a", N: int(n)}}
		}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		out, err := decode(string(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(in, out); diff != "" {
			t.Fatal(diff)
		}
	})
}

// Each row of scalars is correct: the type accepts its example, refuses its bad values, and has a decoder.
func TestScalars(t *testing.T) {
	for typ, s := range scalars {
		v := &Value{Kind: s.Kind, Type: typ, Scalar: s}
		read := func(text string) *refusal {
			return v.decode(jsontext.NewDecoder(strings.NewReader(text)), reflect.New(typ).Elem())
		}
		if r := read(s.Example); r != nil {
			t.Errorf("%s refuses its example: %v", typ, r)
		}
		for _, bad := range s.Bad {
			if r := read(bad); r == nil {
				t.Errorf("%s accepts %s", typ, bad)
			}
		}
		p := reflect.New(typ).Interface()
		_, text := p.(encoding.TextUnmarshaler)
		_, value := p.(stdjson.Unmarshaler)
		if !text && !value && !s.Secret {
			t.Errorf("%s cannot be read", typ)
		}
		if s.Kind == Either && !value {
			t.Errorf("%s has two JSON types and does not read JSON", typ)
		}
	}
}

func TestQueryTakesEscapes(t *testing.T) {
	type q struct {
		Name string `query:"name" limit:"1..8"`
	}
	var out q
	table := Of(reflect.TypeFor[q]())
	if err := table.DecodeQuery("name=a+b%26%C3%A4", &out); err != nil || out.Name != "a b&ä" {
		t.Fatalf("%q, %v", out.Name, err)
	}
	for _, raw := range []string{"name=a;b", "name", "name=", "name=%ff", "name=%0a", "Name=a", "name=a&name=b", "%6eame=a&name=b", "=a", "name=%"} {
		if err := table.DecodeQuery(raw, &q{}); !refused(err) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// The server decodes a query that the client encodes. The encoding is the same as in earlier releases.
func TestQueriesAreReadAsTheyAreSpelt(t *testing.T) {
	hex, decimal, system, n, after := schema.HexID{7: 0xe9}, schema.DecimalID{7: 0xe9}, schema.SystemID(4294967295), 7, int64(1)<<53
	none, name := 0, "a+b &=%;ä"
	for _, tc := range []struct {
		in      any
		want    string
		refused bool // the decoder refuses the value because of a limit
	}{
		{schema.AuditQuery{}, "", false},
		{
			schema.AuditQuery{
				Reason: "aclDenied", PrincipalID: &decimal, Operation: "hmacData", Cursor: 5, Limit: &n,
				Since: time.Date(2026, 1, 31, 9, 0, 0, 5, time.FixedZone("", 3600)), Until: time.Date(2026, 1, 31, 8, 0, 1, 0, time.UTC),
			},
			"?cursor=5&limit=7&operation=hmacData&principalId=233&reason=aclDenied&since=2026-01-31T09%3A00%3A00.000000005%2B01%3A00&until=2026-01-31T08%3A00%3A01Z", false,
		},
		{schema.ChangesQuery{After: new(int64), Wait: &none}, "?after=0&wait=0", false},
		{schema.ChangesQuery{After: &after, Wait: &n}, "?after=9007199254740992&wait=7", false},
		{schema.ListGroupMembersRequest{}, "", false},
		{schema.ListGroupMembersRequest{Limit: &n, Offset: &none}, "?limit=7&offset=0", false},
		{schema.PrincipalQuery{}, "?type=", true},
		{schema.PrincipalQuery{Type: "ldap", Name: name, Limit: &n, Offset: &n}, "?limit=7&name=a%2Bb+%26%3D%25%3B%C3%A4&offset=7&type=ldap", false},
		{schema.PrincipalTrustsQuery{}, "", false},
		{
			schema.PrincipalTrustsQuery{PrincipalID: &hex, TrustedServerSystemID: &system, Limit: &n, Offset: &none},
			"?limit=7&offset=0&principalId=00000000000000e9&trustedServerSystemId=4294967295", false,
		},
		{schema.TemplatedDirectoryQuery{}, "", false},
		{schema.TemplatedDirectoryQuery{Path: []string{"/b/", "", "/a ä"}}, "?path=%2Fb%2F&path=&path=%2Fa+%C3%A4", false},
		{schema.TemplatedDirectoryQuery{ACLTemplateID: []schema.HexID{hex, {}}}, "?aclTemplateId=00000000000000e9&aclTemplateId=0000000000000000", true},
		{schema.TrustedCAsQuery{}, "", false},
		{schema.TrustedCAsQuery{IncludeBodies: true}, "?includeBodies=true", false},
		{schema.TrustedServersQuery{IncludeBodies: true}, "?includeBodies=true", false},
		{schema.TrustedServersQuery{Name: &name}, "?name=a%2Bb+%26%3D%25%3B%C3%A4", false},
		{schema.TrustedServersQuery{Name: new(string)}, "?name=", true}, // refused: it must not select everything
	} {
		table := Of(reflect.TypeOf(tc.in))
		got := table.EncodeQuery(tc.in)
		if got != tc.want {
			t.Errorf("%+v is sent as\n%s, want\n%s", tc.in, got, tc.want)
		}
		out := reflect.New(table.Type)
		err := table.DecodeQuery(strings.TrimPrefix(got, "?"), out.Interface())
		if tc.refused {
			if !refused(err) {
				t.Errorf("%s: %v", got, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", got, err)
		}
		blank := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Path" }, cmp.Transformer("blank", func(in []string) (out []string) {
			for _, s := range in { // empty paths are ignored
				if s != "" {
					out = append(out, s)
				}
			}
			return out
		}))
		if diff := cmp.Diff(tc.in, out.Elem().Interface(), blank); diff != "" {
			t.Errorf("%s is read as another query (-sent +read):\n%s", got, diff)
		}
	}
}

// FuzzDecode checks that accepted text is valid JSON, that encoding/json decodes it to the same value, and that this
// value stays the same when it is encoded and decoded. Other text is refused as BAD_REQUEST without a panic.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"text":"a","null":null}`, `{"text":"a","null":"b","number":-1,"flag":true,"at":"2026-01-31T08:00:00Z"}`,
		`{"text":"\u00e4","null":null,"bytes":"QQ==","link":"AAAA","decimal":1,"system":2,"rights":["READ"],"list":["0000000000000001"]}`,
		`{"nested":[{"name":"a","n":1}],"rights":31,"decimal":"1","secret":"12345678","choice":"AES-256","text":"t","null":null}`,
		`{"text":"a","text":"b"}`, `[]`, `{`, `{"text":"a","null":null}x`, "{\"text\":\"\xff\"}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		out, err := decode(text)
		if err != nil {
			if !refused(err) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		var std everything
		if err := stdjson.Unmarshal([]byte(text), &std); err != nil {
			t.Fatalf("%q is accepted and is not JSON of this type: %v", text, err)
		}
		std.At = std.At.UTC()
		if diff := cmp.Diff(std, out); diff != "" {
			t.Fatalf("%q: %s", text, diff)
		}
		again, err := json.Marshal(out)
		if err != nil {
			t.Fatalf("%q cannot be written: %v", text, err)
		}
		if back, err := decode(string(again)); err != nil || !cmp.Equal(back, out) {
			t.Fatalf("%q is written as %s: %v", text, again, err)
		}
	})
}

type pathOf struct {
	ID     schema.HexID        `path:"id" json:"-"`
	Digest schema.IssuerDigest `path:"digest" json:"-"`
	Free   string              `path:"free" json:"-" limit:"0..64"`
	Text   string              `json:"text"`
}

// A value that would change the path of the route is not encoded.
func TestPathsThatCannotBeSpelt(t *testing.T) {
	digest := schema.IssuerDigest(strings.Repeat("AB", 32))
	table := Of(reflect.TypeFor[pathOf]())
	for name, tc := range map[string]struct {
		in   pathOf
		want string
	}{
		"Empty":        {pathOf{Digest: digest}, "free: must not be empty; "},
		"EmptyScalar":  {pathOf{Free: "a"}, "digest: must not be empty; "},
		"Dot":          {pathOf{Digest: digest, Free: "."}, "free: must not be ., "},
		"DotDot":       {pathOf{Digest: digest, Free: ".."}, "free: must not be .., "},
		"NotAScalar":   {pathOf{Digest: "../roles", Free: "a"}, "digest: must be 64 or 96 hexadecimal digits"},
		"BeyondLimits": {pathOf{Digest: digest, Free: strings.Repeat("a", 65)}, "free: must have at most 64 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := table.EncodePath("/{id}/{digest}/{free}", tc.in)
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) || path != "" {
				t.Errorf("spelt %q, %v; want the refusal %q", path, err, tc.want)
			}
		})
	}
}

func TestPathsAreReadAsTheyAreSpelt(t *testing.T) {
	in := pathOf{ID: schema.HexID{7: 0xe9}, Digest: schema.IssuerDigest(strings.Repeat("AB", 48)), Free: "a/b?c#d%2F{id}ä ;..", Text: "not in it"}
	path, err := Of(reflect.TypeFor[pathOf]()).EncodePath("/x/{id}/{digest}/y/{free}", in)
	want := "/x/00000000000000e9/" + string(in.Digest) + "/y/a%2Fb%3Fc%23d%252F%7Bid%7D%C3%A4%20%3B.."
	if err != nil || path != want {
		t.Fatalf("spelt %q, %v; want %q", path, err, want)
	}
	var out pathOf
	parts := strings.Split(path, "/")
	segments := map[string]string{"id": parts[2], "digest": parts[3], "free": parts[5]}
	err = Of(reflect.TypeFor[pathOf]()).DecodePath(func(name string) string {
		text, err := url.PathUnescape(segments[name])
		if err != nil {
			t.Error(err)
		}
		return text
	}, &out)
	in.Text = ""
	if err != nil || out != in {
		t.Errorf("read as %+v, %v", out, err)
	}
}

// If a type has a body, its path and query fields must not be in the body.
func TestFieldsOfPathAndQueryAreKeptOutOfTheBody(t *testing.T) {
	type leaky struct {
		ID   schema.HexID `path:"id"`
		Text string       `json:"text"`
	}
	defer func() {
		if p := recover(); p == nil {
			t.Error("a path field that the body would hold was let through")
		}
	}()
	Of(reflect.TypeFor[leaky]())
}
