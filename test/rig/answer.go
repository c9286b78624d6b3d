package rig

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
)

// Object is a JSON object of the wire.
type Object = map[string]any

// Answer is a response as a client sees it.
type Answer struct {
	Status    int
	Header    http.Header
	Body      Object
	Raw       []byte
	RequestID string
}

// Code is the failure's code, empty on success.
func (a Answer) Code() string { return a.Field("code") }

// Brief is "OK", or the code of a failure.
func (a Answer) Brief() string {
	if a.Status == http.StatusOK {
		return "OK"
	}
	return a.Code()
}

// Field is the string of that name, empty where there is none.
func (a Answer) Field(name string) string {
	s, _ := a.Body[name].(string)
	return s
}

// At is the value at a path of members.
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

// Text is the string at a path of members, which has to be there.
func (a Answer) Text(t testing.TB, path ...string) string {
	t.Helper()
	s, ok := a.At(t, path...).(string)
	if !ok {
		t.Fatalf("%v is no string in %s", path, a.Raw)
	}
	return s
}

// List is the array of objects of that name, which has to be there.
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

// Number spells a JSON number without exponent. A string is itself, and what is
// neither is empty.
func Number(v any) string {
	switch n := v.(type) {
	case float64:
		return strconv.FormatInt(int64(n), 10)
	case string:
		return n
	}
	return ""
}

// shown is how much of a body a failure repeats.
const shown = 200

// Shorten spells a body for a failure.
func Shorten(body any) string {
	s := fmt.Sprint(body)
	if len(s) > shown {
		s = s[:shown] + "…"
	}
	return s
}
