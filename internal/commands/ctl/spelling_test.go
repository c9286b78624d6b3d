package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asked returns the request of a command line.
func asked(t *testing.T, line ...string) (target, body string, err error) {
	t.Helper()
	all := theTable(t)
	cmd, rest, err := theCommand(t).Find(line)
	if err != nil {
		t.Fatal(err)
	}
	v := all.find(strings.TrimPrefix(cmd.CommandPath(), "ctl "))
	if v == nil {
		v = all.find("explain get")
	}
	cmd.ResetFlags()
	in := v.inputs(cmd)
	if err := cmd.ParseFlags(rest); err != nil {
		t.Fatal(err)
	}
	r, err := in.request(cmd, cmd.Flags().Args())
	if err != nil {
		return "", "", err
	}
	return r.target, string(r.body), nil
}

// TestSpellings checks that all common formats are accepted and converted to the format of the route.
func TestSpellings(t *testing.T) {
	const hex, decimal = "3433ef10968644ca", "3761612968308393162"
	for _, c := range []struct {
		reason string
		line   []string
		want   string // part of the request or of the error
	}{
		{"why takes decimal", []string{"why", "--operation", "hmacData", "--principal-id", decimal}, `"principalId":"` + hex + `"`},
		{"why takes hexadecimal", []string{"why", "--operation", "hmacData", "--principal-id", hex}, `"principalId":"` + hex + `"`},
		{"a path takes decimal", []string{"principals", "get", decimal}, "/api/principals/" + hex},
		{"other paths do not", []string{"roles", "delete", "304"}, "ID: must be 16 hexadecimal digits"},
		{"a query takes hexadecimal", []string{"audit", "list", "--principal-id", hex}, "principalId=" + decimal},
		{"a query takes decimal", []string{"sessions", "list", "--principal-id", decimal}, "principalId=" + hex},
		{"a list takes hexadecimal", []string{"keys", "acl", "revoke", "--ttag", "AAAA", "--system-id", "1", "--principal-id", strings.ToUpper(hex)}, `"principalId":"` + decimal + `"`},
		{"16 digits with a leading zero are hexadecimal", []string{"audit", "list", "--principal-id", "0000000000001001"}, "principalId=4097"},
		{"16 digits are what the route takes: decimal", []string{"audit", "list", "--principal-id", "1234567890123456"}, "principalId=1234567890123456"},
		{"16 digits are what the route takes: hexadecimal", []string{"principals", "get", "1234567890123456"}, "/api/principals/1234567890123456"},
		{"0x says which", []string{"audit", "list", "--principal-id", "0x1234567890123456"}, "principalId=1311768467284833366"},
		{"too long is refused", []string{"audit", "list", "--principal-id", "99999999999999999999"}, "--principal-id: must be"},
		{"a sign is refused", []string{"audit", "list", "--principal-id", "+1"}, "--principal-id: must be"},
		{"within a JSON object", []string{"why", "--operation", "hmacData", "--principal-id", hex, "--with", `{"change":"disable","principalId":"` + decimal + `"}`}, `"with":[{"change":"disable","principalId":"` + hex + `"}]`},
		{"a time within a JSON object", []string{"why", "--operation", "hmacData", "--with", `{"change":"setEntry","principalId":"` + hex + `","rights":["READ"],"endTime":"2027-01-31T00:00:00Z"}`}, `"endTime":"AAABo2kKnAA="`},
		{"an operation by name", []string{"roles", "create", "--name", "x", "--operations", "verify mac", "--operations", "macData"}, `"operations":["`},
		{"an operation of why by name", []string{"why", "--operation", "Verify MAC"}, `"operation":"verify`},
		{"no operation", []string{"roles", "create", "--name", "x", "--operations", "nosuch"}, `--operations is "nosuch"; it must be the name or the key of an operation, or its 16 hexadecimal digits: see keyserverctl operations list`},
	} {
		target, body, err := asked(t, c.line...)
		got := target + " " + body
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "request")
	if err := os.WriteFile(file, []byte(`{"ttag":"AAAA","systemId":1,"principalId":"`+hex+`","rights":1,"endTime":"2027-01-31T00:00:00Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, body, err := asked(t, "keys", "acl", "grant", "--file", file); err != nil || !strings.Contains(body, `"endTime":"AAABo2kKnAA="`) || !strings.Contains(body, decimal) {
		t.Errorf("in a file: %s %v", body, err)
	}
	_, by, err := asked(t, "roles", "create", "--name", "x", "--operations", "Create Role", "--operations", "deleteRole", "--operations", "0000000000000103")
	if err != nil || strings.Count(by, "0000000000000103") != 2 {
		t.Errorf("%s %v", by, err)
	}
}
