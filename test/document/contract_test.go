package document

import (
	"regexp"
	"strings"
	"testing"
)

var (
	routeRow  = regexp.MustCompile("(?m)^### `([A-Z]+) (/api/[^`]*)`$")
	codeRow   = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| (\\d{3}) \\|.*\\|([^|]*)\\|$")
	statusRow = regexp.MustCompile(`(?m)^\| (\d{3}) \| (.*) \|$`)
	codeCell  = regexp.MustCompile("`([A-Z_]+)`( \\*e\\*)?")
)

// TestContractHasEveryRoute checks that each route of the table is in a clause.
func TestContractHasEveryRoute(t *testing.T) {
	contract, routes := prose(read(t, "docs/contract.md")), routeRow.FindAllStringSubmatch(read(t, "docs/api.md"), -1)
	for _, m := range routes {
		if !regexp.MustCompile(regexp.QuoteMeta(m[2]) + "[`?]").MatchString(contract) {
			t.Errorf("no clause of docs/contract.md is about %s %s", m[1], m[2])
		}
	}
	if len(routes) < 60 {
		t.Errorf("only %d routes were read", len(routes))
	}
}

// TestContractHasEveryCode checks that the table of contract 22.2 has the codes of the program.
func TestContractHasEveryCode(t *testing.T) {
	type meaning struct {
		status    string
		extension bool
	}
	_, table, found := strings.Cut(read(t, "docs/contract.md"), `<a id="22.2"></a>`)
	if !found {
		t.Fatal("there is no clause 22.2")
	}
	table, _, _ = strings.Cut(table, "<a id=")
	told := map[string]meaning{}
	for _, row := range statusRow.FindAllStringSubmatch(table, -1) {
		for _, m := range codeCell.FindAllStringSubmatch(row[2], -1) {
			told[m[1]] = meaning{row[1], m[2] != ""}
		}
	}
	// The table has one row for all codes of clause 20.3.
	_, proofs, _ := strings.Cut(read(t, "docs/contract.md"), `<a id="20.3"></a>`)
	proofs, _, _ = strings.Cut(proofs, "<a id=")
	for _, m := range codeCell.FindAllStringSubmatch(proofs, -1) {
		if _, already := told[m[1]]; !already {
			told[m[1]] = meaning{"401", false}
		}
	}
	delete(told, "PROOF_")
	codes := codeRow.FindAllStringSubmatch(read(t, "docs/api.md"), -1)
	for _, m := range codes {
		is := meaning{m[2], strings.Contains(m[3], "extension")}
		if told[m[1]] != is {
			t.Errorf("%s is %v, and in docs/contract.md %v", m[1], is, told[m[1]])
		}
		delete(told, m[1])
	}
	for code := range told {
		t.Errorf("docs/contract.md has the code %s, and nobody answers it", code)
	}
	if len(codes) < 50 {
		t.Errorf("only %d codes were read", len(codes))
	}
}
