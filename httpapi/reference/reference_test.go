package reference

import (
	"regexp"
	"strings"
	"testing"
)

var (
	anchor = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	link   = regexp.MustCompile(`\]\(#([^)]+)\)`)
)

// The reference begins with the login, and describes each type where it is first used.
func TestReference(t *testing.T) {
	page := string(Page())
	login, routes := strings.Index(page, "Authorization: Bearer $SESSION"), strings.Index(page, "## Routes")
	if login < 0 || routes < login {
		t.Error("it does not begin with the login")
	}
	at := map[string]int{}
	for _, place := range anchor.FindAllStringSubmatchIndex(page, -1) {
		name := page[place[2]:place[3]]
		if _, twice := at[name]; twice {
			t.Errorf("%s is described twice", name)
		}
		at[name] = place[0]
	}
	first := map[string]int{}
	for _, place := range link.FindAllStringSubmatchIndex(page, -1) {
		name := page[place[2]:place[3]]
		if _, ok := first[name]; !ok {
			first[name] = place[0]
		}
	}
	headings := regexp.MustCompile(`(?m)^### `)
	for name, used := range first {
		where, ok := at[name]
		if !ok {
			t.Errorf("a link to %s leads nowhere", name)
			continue
		}
		if name[0] >= 'a' {
			continue // the name of a route, in the list of all routes
		}
		if where < used {
			continue // used in the list that describes it
		}
		if headings.MatchString(page[used:where]) {
			t.Errorf("%s is described under a later route than the first that uses it", name)
		}
	}
	for _, raw := range []string{"Rights", "Stamp", "HiddenLink", "DecimalID", "TrustBlob"} {
		if _, ok := at[raw]; !ok {
			t.Errorf("%s is described nowhere", raw)
		}
	}
	for _, words := range []string{"0x400", "1 READ, 2 WRITE, 4 OWNER", "1 CA, 2 Regular", "1 restrict, 2 expose", "milliseconds since 1970"} {
		if !strings.Contains(page, words) {
			t.Errorf("it does not say %q", words)
		}
	}
}
