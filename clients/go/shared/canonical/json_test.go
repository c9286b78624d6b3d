package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// Text that is not JSON, or whose value would change, has no canonical form.
func TestNoForm(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"empty":             {"", ErrNotJSON},
		"two values":        {`{} {}`, ErrNotJSON},
		"cut off":           {`{"a":[1`, ErrNotJSON},
		"a name twice":      {`{"a":1,"a":2}`, ErrNotJSON},
		"twice by escape":   {`{"a":1,"\u0061":2}`, ErrNotJSON},
		"not UTF-8":         {"\"\xff\"", ErrNotJSON},
		"half a surrogate":  {`"\ud800"`, ErrNotJSON},
		"a comma too many":  {`[1,]`, ErrNotJSON},
		"a leading zero":    {`01`, ErrNotJSON},
		"a large integer":   {`9007199254740993`, ErrInexact},
		"a large exponent":  {`{"n":1e30}`, ErrInexact},
		"out of range":      {`1e400`, ErrInexact},
		"a large negative":  {`-9007199254740992`, ErrInexact},
		"deep in an object": {`{"a":[{"b":18446744073709551615}]}`, ErrInexact},
	} {
		if form, err := JSON([]byte(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%s: %q, %v; want %v", name, form, err, c.want)
		}
	}
}

// These are the examples of RFC 8785, sections 3.2.2 and 3.2.3, without the numbers that JSON refuses.
func TestForm(t *testing.T) {
	for text, want := range map[string]string{
		`{ "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false], "numbers": [4.50, 2e-3, 0.000000000000000000000000001] }`:      `{"literals":[null,true,false],"numbers":[4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control"}`: "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		`-0`:                   `0`,
		`1.0`:                  `1`,
		` [ 1e2 , 1E2, 100 ] `: `[100,100,100]`,
		`9007199254740991`:     `9007199254740991`,
	} {
		form, err := JSON([]byte(text))
		if err != nil || string(form) != want {
			t.Errorf("%s: got %s %v, want %s", text, form, err, want)
		}
	}
}

// For any text with a canonical form: the form of the form is equal, another parser reads the same value from both
// texts, names are sorted, and no white space is left.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `null`, `{"b":1,"a":{"z":[1.5,-0,1e-7],"y":"\u00e9\ud83d\ude00"}}`, ` [ true , false , null ] `,
		`{"a":1,"a":2}`, `{"\ud83d\ude00":1,"\ufb33":2}`, `1e21`, `5e-324`, `"\/"`, "\"\x7f\"", `9007199254740991`, `{"":{"":{}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		form, err := JSON(text)
		if err != nil {
			if form != nil {
				t.Fatalf("%q: refused, with the form %q", text, form)
			}
			return
		}
		again, err := JSON(form)
		if err != nil || !bytes.Equal(form, again) {
			t.Fatalf("%q: the form %q has the form %q, %v", text, form, again, err)
		}
		if before, after := decoded(t, text), decoded(t, form); !reflect.DeepEqual(before, after) {
			t.Fatalf("%q: was %#v, and %q is %#v", text, before, form, after)
		}
		ordered(t, form)
	})
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return zero(v)
}

// zero converts -0 to 0, because the canonical form has no -0.
func zero(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 0
	case []any:
		for i := range v {
			v[i] = zero(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = zero(v[k])
		}
	}
	return v
}

func ordered(t *testing.T, form []byte) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(form))
	namesOf(t, dec)
	if int64(len(form)) != dec.InputOffset() {
		t.Fatalf("%q: something follows", form)
	}
	for i, c := range outsideStrings(form) {
		if strings.ContainsRune(" \t\r\n", rune(c)) {
			t.Fatalf("%q: white space at %d", form, i)
		}
	}
}

func namesOf(t *testing.T, dec *json.Decoder) {
	t.Helper()
	token, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	switch token {
	case json.Delim('['):
		for dec.More() {
			namesOf(t, dec)
		}
	case json.Delim('{'):
		var last []uint16
		for first := true; dec.More(); first = false {
			name, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			units := utf16.Encode([]rune(name.(string)))
			if !first && slices.Compare(last, units) >= 0 {
				t.Fatalf("%q stands behind %q", name, string(utf16.Decode(last)))
			}
			last = units
			namesOf(t, dec)
		}
	default:
		return
	}
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
}

// outsideStrings returns the text without the contents of strings.
func outsideStrings(form []byte) []byte {
	var out []byte
	inside, escaped := false, false
	for _, c := range form {
		switch {
		case escaped:
			escaped = false
		case inside && c == '\\':
			escaped = true
		case c == '"':
			inside = !inside
		case !inside:
			out = append(out, c)
		}
	}
	return out
}
