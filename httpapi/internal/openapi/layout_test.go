package openapi

import (
	"strings"
	"testing"
)

func TestLayOut(t *testing.T) {
	long := strings.Repeat("x", LineWidth)
	for reason, tc := range map[string]struct{ in, want string }{
		"what fits stands in one line": {`{"a":[1,2],"b":{}}`, "{\"a\": [1, 2], \"b\": {}}\n"},
		"what does not is broken":      {`{"a":"` + long + `","b":[1]}`, "{\n  \"a\": \"" + long + "\",\n  \"b\": [1]\n}\n"},
		"also within":                  {`[["` + long + `"]]`, "[\n  [\n    \"" + long + "\"\n  ]\n]\n"},
		"text stays as it is":          {`"a: b, c"`, "\"a: b, c\"\n"},
	} {
		got, err := layOut([]byte(tc.in))
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %q, %v, want %q", reason, got, err, tc.want)
		}
	}
	if _, err := layOut([]byte(`{"a":`)); err == nil {
		t.Error("half an object passes")
	}
}
