package rig

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
)

// Object is a JSON object in a request or a response.
type Object = map[string]any

// Answer is a decoded response of a key server.
type Answer struct {
	Status    int
	Header    http.Header
	Body      Object
	Raw       []byte
	RequestID string
}

// Code returns the code of a failure, or "" for a success.
func (a Answer) Code() string { return a.Field("code") }

// Brief returns "OK" or the code of a failure.
func (a Answer) Brief() string {
	if a.Status == http.StatusOK {
		return "OK"
	}
	return a.Code()
}

// Field returns the string member of that name, or "".
func (a Answer) Field(name string) string {
	s, _ := a.Body[name].(string)
	return s
}

// At returns the value at a path of members.
func (a Answer) At(t testing.TB, path ...string) any {
	t.Helper()
	var v any = a.Body
	for _, p := range path {
		o, ok := v.(Object)
		if !ok {
			t.Fatalf("no object above %q in %s", p, a.Raw)
		}
		v = o[p]
	}
	return v
}

// Text returns the string at a path of members, which must exist.
func (a Answer) Text(t testing.TB, path ...string) string {
	t.Helper()
	s, ok := a.At(t, path...).(string)
	if !ok {
		t.Fatalf("%v is no string in %s", path, a.Raw)
	}
	return s
}

// List returns the array of objects with this name, which must exist.
func (a Answer) List(t testing.TB, name string) []Object {
	t.Helper()
	raw, ok := a.Body[name].([]any)
	if !ok {
		t.Fatalf("%q is no array in %s", name, a.Raw)
	}
	list := make([]Object, len(raw))
	for i, v := range raw {
		if list[i], ok = v.(Object); !ok {
			t.Fatalf("%q holds something else than objects in %s", name, a.Raw)
		}
	}
	return list
}

// Number formats a JSON number without an exponent. It returns a string unchanged, and "" for other values.
func Number(v any) string {
	switch n := v.(type) {
	case float64:
		return strconv.FormatInt(int64(n), 10)
	case string:
		return n
	}
	return ""
}

// shown is the maximum length of a body in an error message.
const shown = 200

// Shorten formats a body for an error message.
func Shorten(body any) string {
	s := fmt.Sprint(body)
	if len(s) > shown {
		s = s[:shown] + "…"
	}
	return s
}
