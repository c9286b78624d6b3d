package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// TestEveryRouteHasAMethod checks that each route has a method or is in byHand, and that byHand has no other names.
func TestEveryRouteHasAMethod(t *testing.T) {
	text, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range routes.All() {
		names = append(names, r.Name)
		_, hand := byHand[r.Name]
		if made := strings.Contains(string(text), "\n  "+r.Name+"("); made == hand {
			t.Errorf("%s: a method was made: %v; it is written by hand: %v", r.Name, made, hand)
		}
	}
	for name := range byHand {
		if !slices.Contains(names, name) {
			t.Errorf("%s is no route", name)
		}
	}
}

func TestSpell(t *testing.T) {
	for want, s := range map[string]*schema{
		"HexID":                    {Ref: "#/components/schemas/HexID"},
		`HexID & { code?: "A" }`:   {AllOf: []*schema{{Ref: "#/components/schemas/HexID"}, {Properties: map[string]*schema{"code": {Const: "A"}}}}},
		"HexID | null":             {OneOf: []*schema{{Ref: "#/components/schemas/HexID"}, {Type: "null"}}},
		"string | null":            {Type: []any{"string", "null"}},
		`"on" | "off"`:             {Type: "string", Enum: []any{"on", "off"}},
		"true":                     {Const: true},
		"string[]":                 {Type: "array", Items: &schema{Type: "string"}},
		`("on" | "off")[]`:         {Type: "array", Items: &schema{Enum: []any{"on", "off"}}},
		"Record<string, number>":   {Type: "object", AdditionalProperties: map[string]any{"type": "integer"}},
		"Record<string, unknown>":  {Type: "object"},
		"Record<string, string[]>": {Type: "object", AdditionalProperties: map[string]any{"type": "array", "items": map[string]any{"type": "string"}}},
		"boolean | null":           {Type: []any{"boolean", "null"}},
		"unknown":                  {},
	} {
		if got := spell(s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestComments(t *testing.T) {
	w := &writer{}
	w.comment("  ", "ends */ early")
	if strings.Count(w.b.String(), "*/") != 1 {
		t.Errorf("the comment ends early: %s", w.b.String())
	}
	w.b.Reset()
	w.comment("  ", strings.Repeat("a word ", 60))
	for line := range strings.Lines(w.b.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
