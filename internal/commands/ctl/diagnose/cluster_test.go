package diagnose_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// liar starts a fake API server and returns its kubeconfig. It responds like a real one if other returns false.
func liar(t *testing.T, other func(w http.ResponseWriter, r *http.Request) bool) (kubeconfig string) {
	t.Helper()
	answers := map[string]string{
		"/version": `{"major":"1","minor":"33"}`,
		"/api/v1/namespaces/keyserver-system/pods":   `{"kind":"PodList","apiVersion":"v1","items":[]}`,
		"/api/v1/namespaces/keyserver-system/events": `{"kind":"EventList","apiVersion":"v1","items":[]}`,
	}
	for _, kind := range v1beta1.Kinds {
		answers[cluster.PathIn(v1beta1.GroupVersion, kind)] = listOf(kind, "", "")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if other(w, r) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	rig.Must(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}`, s.URL), 0o600))
	return kubeconfig
}

// listOf returns a page of a list. next is the continue token.
func listOf(kind v1beta1.Kind, next, items string) string {
	return fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"continue":%q},"items":[%s]}`, kind.Name, v1beta1.GroupVersion.String(), next, items)
}

// TestAnAnswerOfAClusterIsBounded checks that every response is limited in bytes, even if it is compressed.
func TestAnAnswerOfAClusterIsBounded(t *testing.T) {
	const all = 256 << 20 // ends the test even if the client reads without a limit
	flood := func(w io.Writer) (sent int) {
		for piece := []byte(`{"a":"` + strings.Repeat("b", 65_000) + `"},`); sent < all; sent += len(piece) {
			if _, err := w.Write(piece); err != nil {
				return sent
			}
		}
		return sent
	}
	const logs = "/pods/p/log"
	for name, tc := range map[string]struct {
		path   string
		status int
		zipped bool
	}{
		"the version": {"/version", 200, false}, "a list": {"/roles", 200, false}, "a refusal": {"/roles", 500, false},
		"Pods": {"/pods", 200, false}, "events": {"/events", 200, false}, "a list that was packed": {"/roles", 200, true}, "the refusal of a log": {logs, 500, false},
	} {
		for _, command := range []string{"doctor", "support-bundle"} {
			if command == "doctor" && (name == "Pods" || name == "events" || tc.path == logs) {
				continue
			}
			t.Run(name+" for "+command, func(t *testing.T) {
				kubeconfig := liar(t, func(w http.ResponseWriter, r *http.Request) bool {
					if tc.path == logs && strings.HasSuffix(r.URL.Path, "/pods") {
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}]}`)
						return true
					}
					if !strings.HasSuffix(r.URL.Path, tc.path) {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					if !tc.zipped {
						w.WriteHeader(tc.status)
						if flood(w) >= all {
							t.Errorf("%s was read to its end", r.URL.Path)
						}
						return true
					}
					if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
						t.Error("nothing packed is asked for: the test shows nothing")
					}
					w.Header().Set("Content-Encoding", "gzip")
					zip := gzip.NewWriter(w)
					flood(zip)
					_ = zip.Close()
					return true
				})
				args := []string{command, "--cluster", "--kubeconfig", kubeconfig}
				out := filepath.Join(t.TempDir(), "b.tar.gz")
				if command == "support-bundle" {
					args = append(args, "--output", out)
				}
				said := &bytes.Buffer{}
				run(t, args, said)
				if command == "support-bundle" {
					archive, err := os.ReadFile(out)
					rig.Must(t, err)
					said.WriteString(rig.Unpacked(t, archive)["support-bundle/files.json"].Text)
				}
				if !strings.Contains(said.String(), "the response of the cluster is longer than 32 MiB") {
					t.Errorf("it does not say so:\n%s", rig.Shorten(said.String()))
				}
			})
		}
	}
}

// TestAnAnswerOfSmallValuesIsBounded checks the limit of JSON values, because two bytes of a response can need a
// kilobyte of memory. It also applies to unexpected media types.
func TestAnAnswerOfSmallValuesIsBounded(t *testing.T) {
	role := kindOf("roles")
	for name, tc := range map[string]struct{ is, answer, says string }{
		"objects": {"application/json", listOf(role, "", strings.Repeat("{},", 600_000)+"{}"), "the response of the cluster has more than 500000 values"},
		"nothing": {"application/json", listOf(role, "", strings.Repeat("null,", 600_000)+"null"), "the response of the cluster has more than 500000 values"},
		"in one":  {"application/json", listOf(role, "", `{"status":{"conditions":[`+strings.Repeat("{},", 600_000)+"{}]}}"), "the response of the cluster has more than 500000 values"},
		"of YAML": {"application/yaml", fmt.Sprintf("kind: RoleList\napiVersion: %s\nitems:\n%s", v1beta1.GroupVersion, strings.Repeat("- {}\n", 10)), "roles: FAILED: "},
	} {
		kubeconfig := liar(t, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/roles") {
				return false
			}
			w.Header().Set("Content-Type", tc.is)
			_, _ = io.WriteString(w, tc.answer)
			return true
		})
		var out bytes.Buffer
		if code := run(t, []string{"doctor", "--cluster", "--kubeconfig", kubeconfig}, &out); code != program.ExitError || !strings.Contains(out.String(), tc.says) || strings.Contains(out.String(), "no condition Ready") {
			t.Errorf("%s: it ends with %d, has read it or does not say %q:\n%s", name, code, tc.says, rig.Shorten(out.String()))
		}
	}
}

func kindOf(resource string) v1beta1.Kind {
	return v1beta1.Kinds[slices.IndexFunc(v1beta1.Kinds, func(k v1beta1.Kind) bool { return k.Resource == resource })]
}

// TestDoctorEndsWhereAListDoesNot checks that doctor stops reading an endless list, and reports this.
func TestDoctorEndsWhereAListDoesNot(t *testing.T) {
	const broken = `{"metadata":{"name":"a","namespace":"d"}}`
	role := kindOf("roles")
	pages := 0
	for name, tc := range map[string]struct {
		next     func() string
		items    int
		pages    int
		findings int
		says     []string
	}{
		"the same page again": {func() string { return "more" }, 1, 2, 2, []string{"roles: the rest was not checked: the cluster returns the same page repeatedly\n", "roles: FAILED: 3 findings; 2 objects checked\n"}},
		"empty pages":         {func() string { return fmt.Sprint(pages) }, 0, 5000, 0, []string{"roles: the rest was not checked: there are more than 5000 pages\n"}},
		"findings":            {func() string { return fmt.Sprint(pages) }, 400, 3, 1000, []string{"roles: the rest was not checked: there are more than 1000 findings\n"}},
	} {
		pages = 0
		kubeconfig := liar(t, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/roles") || r.URL.Query().Get("limit") == "1" { // the check "definitions"
				return false
			}
			pages++
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, listOf(role, tc.next(), strings.TrimSuffix(strings.Repeat(broken+",", tc.items), ",")))
			return true
		})
		var out bytes.Buffer
		if code := run(t, []string{"doctor", "--cluster", "--kubeconfig", kubeconfig}, &out); code != program.ExitError {
			t.Errorf("%s: it ends with %d", name, code)
		}
		for _, says := range tc.says {
			if !strings.Contains(out.String(), says) {
				t.Errorf("%s: it does not say %q:\n%s", name, says, rig.Shorten(out.String()))
			}
		}
		if n := strings.Count(out.String(), "no condition Ready"); pages != tc.pages || n != tc.findings {
			t.Errorf("%s: %d pages, %d findings", name, pages, n)
		}
	}
}

// TestDoctorReadsOlderDefinitions checks that doctor reads the objects of a cluster that serves only the deprecated
// version, and reports the definitions.
func TestDoctorReadsOlderDefinitions(t *testing.T) {
	kubeconfig := liar(t, func(w http.ResponseWriter, r *http.Request) bool {
		former := "/apis/" + v1beta1.Deprecated.String() + "/"
		switch {
		case strings.HasPrefix(r.URL.Path, "/apis/"+v1beta1.GroupVersion.String()+"/"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		case strings.HasPrefix(r.URL.Path, former):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, listOf(kindOf(strings.TrimPrefix(r.URL.Path, former)), "", `{"metadata":{"name":"a","namespace":"d"}}`))
		default:
			return false
		}
		return true
	})
	var out bytes.Buffer
	run(t, []string{"doctor", "--cluster", "--kubeconfig", kubeconfig}, &out)
	for _, says := range []string{"no condition Ready", "has no version v1beta1, which the manager of this release needs; apply config/crd"} {
		if n := strings.Count(out.String(), says); n != len(v1beta1.Kinds) {
			t.Errorf("%q for %d of %d kinds:\n%s", says, n, len(v1beta1.Kinds), out.String())
		}
	}
}

// TestALineOfDoctorIsBounded checks that a long error message is cut.
func TestALineOfDoctorIsBounded(t *testing.T) {
	kubeconfig := liar(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/roles") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": strings.Repeat("é", 1<<20)})
		return true
	})
	var out bytes.Buffer
	if code := run(t, []string{"doctor", "--cluster", "--kubeconfig", kubeconfig}, &out); code != program.ExitError || out.Len() > 64<<10 || !strings.Contains(out.String(), "é (cut)\n") {
		t.Errorf("it ends with %d and %d bytes", code, out.Len())
	}
}

// TestABundleThatIsGivenUpLeavesNothing checks that a cancelled bundle leaves no file, and that no file is overwritten.
func TestABundleThatIsGivenUpLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "b.tar.gz")
	during := func() {}
	kubeconfig := liar(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/events") {
			during()
		}
		return false
	})
	packs := func(ctx context.Context) error {
		p, _ := ctl.Program("keyserverctl", nil)
		cmd, err := p.Commands(nil)
		rig.Must(t, err)
		cmd.SetArgs([]string{"support-bundle", "--cluster", "--kubeconfig", kubeconfig, "--output", out})
		cmd.SetOut(io.Discard)
		return cmd.ExecuteContext(ctx)
	}
	files := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		rig.Must(t, err)
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("there are the files %q", got)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	during = func() {
		if _, err := os.Lstat(out); err == nil {
			t.Error("what is not whole has the name already")
		}
		stop()
	}
	if err := packs(ctx); err == nil || err.Error() != "the command was interrupted before the bundle was complete; there is no bundle" {
		t.Errorf("who tells it to end is answered %v", err)
	}
	files()

	during = func() { rig.Must(t, os.WriteFile(out, []byte("of somebody"), 0o600)) }
	if err := packs(t.Context()); err == nil || !strings.Contains(err.Error(), "--output: ") {
		t.Errorf("a file that comes meanwhile is answered %v", err)
	}
	during = func() { t.Error("something was asked for a bundle that cannot be written") }
	if err := packs(t.Context()); err == nil || !strings.Contains(err.Error(), "--output: ") {
		t.Errorf("a file that is there is answered %v", err)
	}
	files("b.tar.gz")
	if text, err := os.ReadFile(out); err != nil || string(text) != "of somebody" {
		t.Errorf("it became %q: %v", text, err)
	}

	during = func() {}
	rig.Must(t, os.Remove(out))
	rig.Must(t, packs(t.Context()))
	files("b.tar.gz")
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is %v: %v", info, err)
	}
}
