package document

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

// commands are blocks of a page that a test runs: those below a heading, those with some words, or all. For each block,
// the first match counts.
type commands struct{ page, heading, words, test string }

var run = []commands{
	{"docs/start/workload.md", "", "", "test/e2e TestWorkload"},
	{"README.md", "Install", "", "test/e2e TestUninstall"},
	{"README.md", "Use it", "", "test/e2e TestUninstall"},
	{"docs/api.md", "", "", "test/contract TestLoginExample"},
	{"docs/ctl.md", "Install the plugin with krew", "", "test/krew TestKrew"},
	{"docs/ctl.md", "", "", "test/e2e TestStartPages"},
	{"docs/guides/archive-the-audit-log.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/back-up.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/explain-a-refusal.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/generate-a-client.md", "", "", "test/generators TestGeneratedClients"},
	{"docs/guides/move-to-postgresql.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/recover-the-key-encryption-key.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/replace-the-ca.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/replace-the-key-encryption-key.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/restore.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/rotate-and-withdraw-keys.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/rotate-data-key.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/session.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/test-with-a-key-server.md", "", "", "test/keyservertest TestExamples"},
	{"docs/guides/use-an-hsm.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/guides/verify-the-audit-log.md", "", "", "test/operations TestOperationsByTheirCommands"},
	{"docs/install.md", "Install a release", "", "test/cluster TestInstallFiles"},
	{"docs/install.md", "Install in one Pod", "", "test/cluster TestAnInstallation"},
	{"docs/install.md", "Install replicas on PostgreSQL", "", "test/cluster TestScaledOut"},
	{"docs/install.md", "Move from one Pod to many", "", "test/cluster TestFormsAreSwitched"},
	{"docs/install.md", "Move from many to one Pod", "", "test/cluster TestFormsAreSwitched"},
	{"docs/install.md", "", "helm test ", "test/cluster TestHelm"},
	{"docs/install.md", "", "cosign ", "hack/image TestOnlyWhatWasSignedIsTaken"},
	{"docs/install.md", "", "--take-ownership", "test/install TestChartAsDocumented"},
	{"docs/install.md", "Install with Helm", "", "test/install TestChartAsDocumented"},
	{"docs/install.md", "Give people rights", "", "test/e2e TestStartPages"},
	{"docs/install.md", "Open a namespace to the manager", "", "test/e2e TestStartPages"},
	{"docs/install.md", "Monitor and troubleshoot", "", "test/cluster TestAnInstallation"},
	{"docs/install.md", "Argo CD", "", "test/e2e TestStartPages"},
	{"docs/kms.md", "", "create token control-plane", "test/cluster TestPods"},
	{"docs/kms.md", "", "kubectl replace -f -", "test/cluster TestPods"},
	{"docs/kms.md", "", "get endpointslices", "test/cluster TestPods"},
	{"docs/resources.md", "", "", "hack/resources TestSession"},
	{"docs/start/application-developer.md", "", "", "test/e2e TestStartPages"},
	{"docs/start/auditor.md", "", "", "test/e2e TestStartPages"},
	{"docs/start/contributor.md", "", "", "test/e2e TestContributorPage"},
	{"docs/start/federation.md", "", "", "test/federation/processes TestUpFederation"},
	{"docs/start/on-call.md", "", "", "test/e2e TestStartPages"},
	{"docs/start/platform-engineer.md", "", "", "test/e2e TestStartPages"},
	{"docs/start/security-officer.md", "", "", "test/e2e TestStartPages"},
	{"docs/uninstall.md", "", "", "test/e2e TestUninstall"},
	{"docs/upgrade.md", "Prepare the upgrade", "", "test/upgrade TestTheCommandsOfTheDocument"},
	{"docs/upgrade.md", "Check the result", "", "test/upgrade TestTheCommandsOfTheDocument"},
	{"docs/upgrade.md", "Move to v1beta1", "", "test/versions TestMove"},
	{"docs/workloads.md", "Give the namespace a grant", "", "test/cluster TestAnInstallation"},
	{"docs/workloads.md", "Declare role, principal and key", "", "test/cluster TestAnInstallation"},
	{"docs/workloads.md", "Run the Pod", "", "test/cluster TestAnInstallation"},
	{"docs/workloads.md", "Call the key server", "", "test/cluster TestAnInstallation"},
	{"docs/workloads.md", "Use an agent instead of credential code", "", "test/cluster TestAnInstallation"},
	{"docs/workloads.md", "Find out why a request failed", "", "test/cluster TestAnInstallation"},
}

func (c commands) fits(page string, b markdown.Block) bool {
	return page == c.page && (c.heading == "" || b.Heading == c.heading) && strings.Contains(b.Text, c.words)
}

// documents returns the pages that users read first: the README, and docs.
func documents(t *testing.T) []string {
	t.Helper()
	names := slices.DeleteFunc(written(t), func(name string) bool {
		return path.Ext(name) != ".md" || name != "README.md" && !strings.HasPrefix(name, "docs/")
	})
	if len(names) < 80 {
		t.Fatalf("only %d documents were found", len(names))
	}
	return names
}

// TestCommandsAreRun checks that each block of commands is run by a test, or has a mark with the reason why it is not
// run.
func TestCommandsAreRun(t *testing.T) {
	counted, used := map[string]int{}, make([]bool, len(run))
	for _, name := range documents(t) {
		text := read(t, name)
		if indented := regexp.MustCompile("(?m)^ +```(?:sh|bash|shell|console)\n.*").FindString(text); indented != "" {
			t.Errorf("%s: a block of commands is indented, where no test finds it: %s", name, indented)
		}
		for _, b := range markdown.Fences(text) {
			if b.Language == "" {
				t.Errorf("%s: a block under %q has no language; what is no command is ```text:\n%s", name, b.Heading, b.Text)
			}
			if !slices.Contains(markdown.Languages, b.Language) {
				if b.NotRun != "" {
					t.Errorf("%s: nobody would run this, and it is said why not:\n%s", name, b.Text)
				}
				continue
			}
			by := slices.IndexFunc(run, func(c commands) bool { return c.fits(name, b) })
			switch {
			case b.NotRun != "" && by >= 0 && !strings.Contains(sources(t, run[by]), ".NotRun"):
				t.Errorf("%s: under %q is said why nobody runs what %s runs:\n%s", name, b.Heading, run[by].test, b.Text)
			case b.NotRun != "":
				counted["not run"]++
			case b.Language != "sh":
				t.Errorf("%s: commands are ```sh, which tests find, and not ```%s:\n%s", name, b.Language, b.Text)
			case by < 0:
				t.Errorf("%s: under %q is what no test runs. Run it and add it to the list above, or say why not, by a line <!-- not run: WHY --> above it:\n%s", name, b.Heading, b.Text)
			default:
				used[by] = true
				counted[run[by].test]++
			}
		}
		// A mark has no effect unless it is directly above a code fence.
		if marks, fences := len(regexp.MustCompile("(?m)^<!-- not run: ").FindAllString(text, -1)), len(regexp.MustCompile("(?m)^<!-- not run: .+ -->\n```").FindAllString(text, -1)); marks != fences {
			t.Errorf("%s: %d of %d marks stand above no block", name, marks-fences, marks)
		}
	}
	for i, c := range run {
		if !used[i] {
			t.Errorf("%+v runs nothing", c)
		}
	}
	t.Logf("blocks of commands: %v", counted)
}

// TestCommandsAreRunByTests checks that the named tests exist. Their package must read the page and contain the words
// that select the block.
func TestCommandsAreRunByTests(t *testing.T) {
	for _, c := range run {
		_, name, _ := strings.Cut(c.test, " ")
		all := sources(t, c)
		for _, has := range []string{"\nfunc " + name + "(t *testing.T) {", path.Base(c.page) + `"`, c.heading, c.words} {
			if !strings.Contains(all, has) {
				t.Errorf("%s is said to run commands of %s, and its package has no %q", c.test, c.page, has)
			}
		}
	}
}

// sources returns the source text of a test's package.
func sources(t *testing.T, of commands) string {
	t.Helper()
	dir, _, _ := strings.Cut(of.test, " ")
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
