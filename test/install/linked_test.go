package install

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"

	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// testLibraries are libraries for tests on a developer's machine, which programs must not link. The typed clients of
// client-go link their fakes (k8s.io/client-go/testing), which are harmless.
var testLibraries = map[string]*regexp.Regexp{
	"testing":  regexp.MustCompile(`^testing(/|$)`),
	"httptest": regexp.MustCompile(`^net/http/httptest$`),
	"envtest":  regexp.MustCompile(`^sigs\.k8s\.io/controller-runtime/pkg/(envtest|internal/testing)(/|$)`),
	"ginkgo":   regexp.MustCompile(`^github\.com/onsi/ginkgo(/|$)`),
	"gomega":   regexp.MustCompile(`^github\.com/onsi/gomega(/|$)`),
	"fakes":    regexp.MustCompile(`^sigs\.k8s\.io/controller-runtime/pkg/client/(fake|interceptor)(/|$)`),
	"our own":  regexp.MustCompile(`^github\.com/keyserver-operator/keyserver-operator/(test|internal/(store/pgtest|store/cache/cachetest|auth/ldap/ldaptest|server/testserver|engine/enginetest))(/|$)`),
}

func TestNoTestLibraryIsLinked(t *testing.T) {
	linked := dependencies(t, ".", "./cmd/keyserver-agent", "./cmd/keyserverctl")
	if !slices.Contains(linked, "sigs.k8s.io/controller-runtime/pkg/manager") {
		t.Fatal("these are not the packages of the programs")
	}
	for _, name := range linked {
		for what, library := range testLibraries {
			if library.MatchString(name) {
				t.Errorf("%s (%s) is linked into the program", name, what)
			}
		}
	}
	// This checks that each pattern matches some package.
	all := dependencies(t, "-test", "./...")
	for what, library := range testLibraries {
		if !slices.ContainsFunc(all, library.MatchString) && what != "fakes" {
			t.Errorf("no package goes by the pattern of %s", what)
		}
	}
}

// A program that imports the client links the client, a JSON and a base64 reader, the code that reads
// tile paths (one package without dependencies), and nothing of databases, clouds or Kubernetes.
func TestTheClientIsLight(t *testing.T) {
	light := regexp.MustCompile(`^golang\.org/x/mod/sumdb/tlog$|^github\.com/(go-json-experiment/json|segmentio/asm)(/|$)|^golang\.org/x/(sync|sys)/` +
		`|^github\.com/keyserver-operator/keyserver-operator/clients/go/`)
	linked := dependencies(t, "github.com/keyserver-operator/keyserver-operator/clients/go/client")
	if !slices.ContainsFunc(linked, light.MatchString) {
		t.Fatal("these are not the packages of the client")
	}
	for _, name := range linked {
		first, _, _ := strings.Cut(name, "/")
		if strings.Contains(first, ".") && !light.MatchString(name) {
			t.Errorf("the client links %s", name)
		}
	}

	list := exec.Command("go", "list", "-m", "all")
	list.Dir = "../../clients/go"
	modules, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, modules)
	}
	lines := strings.Split(strings.TrimSpace(string(modules)), "\n")[1:] // the first line is the module itself
	if len(lines) >= 15 {
		t.Errorf("the graph of the client's module has %d others; fewer than 15 are allowed:\n%s", len(lines), modules)
	}
	// Both files must require the same versions, because our tests run with the main go.mod.
	all := required(t, "../../go.mod")
	for path, version := range required(t, "../../clients/go/go.mod") {
		if all[path] != version {
			t.Errorf("go.mod requires %s %q, and clients/go/go.mod %s; run go get in both directories", path, all[path], version)
		}
	}
}

// required returns the versions of the modules that a go.mod requires.
func required(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.ParseLax(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, r := range parsed.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	return versions
}

// heavy are libraries that the programs for laptops and Pods must not link.
var heavy = map[string]*regexp.Regexp{
	"a database":     regexp.MustCompile(`^modernc\.org/|^github\.com/jackc/`),
	"a cloud":        regexp.MustCompile(`^gocloud\.dev|^github\.com/(aws|Azure)/|^cloud\.google\.com/|^google\.golang\.org/api/|^github\.com/envoyproxy/`),
	"Kubernetes":     regexp.MustCompile(`^k8s\.io/(client-go|apimachinery|api)(/|$)|^sigs\.k8s\.io/`),
	"the key server": regexp.MustCompile(`^github\.com/keyserver-operator/keyserver-operator/(httpapi$|controllers|internal/(audit|auth|engine|operator|store|commands$|server$))`),
}

// forDiagnosis are the heavy packages that keyserverctl may link, because it reads clusters by path and verifies the
// audit log. The typed clients and the types of Kubernetes are not included.
var forDiagnosis = regexp.MustCompile(`^k8s\.io/apimachinery/|^k8s\.io/client-go/(features|pkg|plugin/pkg/client/auth/exec|rest|tools/(auth|clientcmd|metrics)|transport|util)(/|$)` +
	`|^sigs\.k8s\.io/(json|randfill|structured-merge-diff/v6/value|yaml)(/|$)|^github\.com/keyserver-operator/keyserver-operator/internal/audit(/tree)?$`)

// cloudSDK matches packages of cloud SDKs.
var cloudSDK = regexp.MustCompile(`^github\.com/(aws/|Azure/azure-sdk-for-go/)|^cloud\.google\.com/`)

// TestProgramsAreLight checks that keyserverctl and keyserver-agent link neither the key server nor its
// libraries, and that keyserver-dev links no cloud SDK.
func TestProgramsAreLight(t *testing.T) {
	for _, name := range []string{"./cmd/keyserverctl", "./cmd/keyserver-agent"} {
		linked := dependencies(t, name)
		if !slices.Contains(linked, "github.com/keyserver-operator/keyserver-operator/clients/go/client") {
			t.Fatalf("these are not the packages of %s", name)
		}
		for _, one := range linked {
			for what, library := range heavy {
				if library.MatchString(one) && (name != "./cmd/keyserverctl" || !forDiagnosis.MatchString(one)) {
					t.Errorf("%s links %s (%s)", name, one, what)
				}
			}
		}
	}
	for _, one := range dependencies(t, "./cmd/keyserver-dev") {
		if cloudSDK.MatchString(one) {
			t.Errorf("keyserver-dev links %s", one)
		}
	}
	all := dependencies(t, ".")
	if !slices.ContainsFunc(all, cloudSDK.MatchString) {
		t.Error("keyserver-operator has no package by the pattern of the SDKs")
	}
	for what, library := range heavy {
		if !slices.ContainsFunc(all, library.MatchString) {
			t.Errorf("keyserver-operator has no package by the pattern of %s", what)
		}
	}
}

// dependencies returns the packages that the given packages link.
func dependencies(t *testing.T, arguments ...string) []string {
	t.Helper()
	if err := program.DependOnSources(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append([]string{"list", "-deps"}, arguments...)...)
	cmd.Dir = "../.."
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errOut.String())
	}
	return strings.Fields(string(out))
}
