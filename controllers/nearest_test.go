package controllers

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestUnknownNames checks that the message suggests the most similar names and is short, even for many long names.
func TestUnknownNames(t *testing.T) {
	var known []string
	for _, op := range keyserver.Operations {
		known = append(known, op.Name)
	}
	for name, tc := range map[string]struct {
		unknown []string
		says    string
	}{
		"Misspelt":   {[]string{"HMAC Date"}, `the key server does not know "HMAC Date"; did you mean "HMAC Data"?`},
		"OtherCase":  {[]string{"list  roles"}, `did you mean "List Roles"?`},
		"AuditKey":   {[]string{"hmacData"}, `did you mean "HMAC Data"?`},
		"Several":    {[]string{"HMAC Date", "List Rolls"}, `did you mean "HMAC Data", "List Roles"?`},
		"Nothing":    {[]string{"do as you please"}, "; GET /api/operations lists them"},
		"Many":       {strings.Split(strings.Repeat("Set Approval Polcy,", 200), ","), "and 198 more"},
		"VeryLong":   {[]string{strings.Repeat("x", 4096), strings.Repeat("ä", 4096), strings.Repeat("\u200b", 4096)}, "GET /api/operations"},
		"Multi-byte": {[]string{"HMAC Dätä"}, `did you mean "HMAC Data"?`},
	} {
		t.Run(name, func(t *testing.T) {
			says := "spec.operations: " + unknownNames(tc.unknown, known, "GET /api/operations lists them")
			if !strings.Contains(says, tc.says) || utf8.RuneCountInString(says) > 300 || !utf8.ValidString(says) {
				t.Errorf("%d characters: %s", utf8.RuneCountInString(says), says)
			}
		})
	}
}
