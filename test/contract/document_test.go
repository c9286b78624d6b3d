package contract

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/curl"
)

// document is the OpenAPI document, parsed by an independent public library.
var document = sync.OnceValues(func() (validator.Validator, error) {
	text, err := routes.OpenAPI()
	if err != nil {
		return nil, err
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return v, nil
})

// TestLoginExample runs the first example of docs/api.md, in a directory like that of make run.
func TestLoginExample(t *testing.T) {
	s := one(t)
	page, err := os.ReadFile("../../docs/api.md")
	rig.Must(t, err)
	_, rest, _ := strings.Cut(string(page), "```sh\n")
	script, _, ok := strings.Cut(rest, "```")
	if !ok || strings.Count(script, "https://127.0.0.1:8443") != 1 {
		t.Fatalf("the page begins with no example against the address of make run:\n%s", script)
	}
	dir := t.TempDir()
	rig.Must(t, os.MkdirAll(filepath.Join(dir, ".keyserver", "server"), 0o700))
	ca, err := os.ReadFile(s.CAFile())
	rig.Must(t, err)
	first := s.place.root // the principal name in the example
	key := first.OK(t, first.AsAdmin(t), "POST", "/api/keys", rig.Object{"algorithm": "HMAC-SHA384"}).Text(t, "ttag")
	for name, content := range map[string]string{
		"server/ca.crt": string(ca), "server/bootstrap-password": testserver.AdminPassword + "\n", "demo-key": key + "\n",
	} {
		rig.Must(t, os.WriteFile(filepath.Join(dir, ".keyserver", name), []byte(content), 0o600))
	}
	curl.Need(t)
	script = strings.ReplaceAll(script, "https://127.0.0.1:8443", s.URL())
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	var complaint bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the example fails: %v\n%s%s", err, out, complaint.Bytes())
	}
	for _, want := range []string{`"kind":"password"`, `"mac":"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the example does not answer %s:\n%s", want, out)
		}
	}
}

// largest is the size of the longest validated response, in bytes.
const largest = 1 << 20

// validate checks a response against the document. It skips unknown paths and methods, which are not in the
// document.
func validate(t testing.TB, r *http.Request, a rig.Answer) {
	t.Helper()
	if a.Body["unsupported"] == true || len(a.Raw) > largest || r.URL.Path == addCheckpoint {
		return
	}
	v, err := document()
	if err != nil {
		t.Fatal(err)
	}
	asked := r.Clone(r.Context())
	asked.Body = http.NoBody
	response := &http.Response{StatusCode: a.Status, Header: a.Header, Body: io.NopCloser(bytes.NewReader(a.Raw))}
	ok, errs := v.ValidateHttpResponse(asked, response)
	if ok {
		return
	}
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&b, "\n  %s: %s", e.Message, e.Reason)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n    %s at %s", s.Reason, s.FieldPath)
		}
	}
	t.Errorf("%s %s answered %d %s, which the OpenAPI document does not allow:%s", r.Method, r.URL.Path, a.Status, rig.Shorten(string(a.Raw)), b.String())
}

// codes are the failure codes in responses of this run.
type codes struct {
	mu  sync.Mutex
	set map[string]bool
}

var seen = &codes{set: map[string]bool{}}

func (c *codes) add(code string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set[code] = true
}

// testsOfCodes has the codes that no request to a single healthy server can produce, each with the test that produces it.
var testsOfCodes = map[fault.Code]string{
	fault.NotSaved:     "internal/engine/verified TestASwallowedWriteIsNeverASuccess",
	fault.NotRemoved:   "internal/engine/verified TestASwallowedWriteIsNeverASuccess",
	fault.NotPersisted: "internal/engine/verified TestTrustVerdicts",
	fault.NotVerified:  "internal/engine/verified TestASwallowedWriteIsNeverASuccess",
	fault.OpFailed:     "httpapi TestFaultsAtTheEdge",
	// These need a second key server.
	fault.PeerUnavailable: "test/federation/processes TestPeerKilledInMidCall",
	fault.PeerNoAnswer:    "test/federation/processes TestAnswerLost",
}

// TestElsewhere checks that the tests in elsewhere exist.
func TestElsewhere(t *testing.T) {
	for code, where := range testsOfCodes {
		directory, name, _ := strings.Cut(where, " ")
		files, err := filepath.Glob(filepath.Join("..", "..", directory, "*_test.go"))
		rig.Must(t, err)
		there := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			rig.Must(t, err)
			there = there || bytes.Contains(text, []byte("\nfunc "+name+"(t *testing.T)"))
		}
		if !there {
			t.Errorf("%s: there is no %s in %s", code, name, directory)
		}
	}
}

// TestMain stops the shared servers. After a complete run it checks that each code of the catalogue was in some
// response.
func TestMain(m *testing.M) {
	status := m.Run()
	if !end() {
		status = 1
	}
	if n := starts.Load(); n > maxStarts {
		fmt.Fprintf(os.Stderr, "FAIL: this run started %d servers, more than %d: let tests share them\n", n, maxStarts)
		status = 1
	}
	whole := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" && !testing.Short()
	if status == 0 && whole {
		status = everyCode()
	}
	os.Exit(status)
}

func everyCode() int {
	var missing []string
	for _, entry := range fault.Catalogue {
		if !seen.set[string(entry.Code)] && testsOfCodes[entry.Code] == "" {
			missing = append(missing, string(entry.Code))
		}
	}
	for code := range testsOfCodes {
		if seen.set[string(code)] {
			fmt.Fprintf(os.Stderr, "FAIL: %s came out of a request of this run: it is covered here\n", code)
			return 1
		}
	}
	if len(missing) == 0 {
		return 0
	}
	sort.Strings(missing)
	fmt.Fprintf(os.Stderr, "FAIL: no request of this run was answered with %s\n", strings.Join(missing, ", "))
	return 1
}
