package commands

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// broken is a writer that panics.
type broken struct{}

func (broken) Write([]byte) (int, error) { panic("the writer\nis broken") }

// TestLinkOfThePlugin checks links to keyserver-operator with these names, which docs/ctl.md recommended earlier.
func TestLinkOfThePlugin(t *testing.T) {
	for _, name := range []string{"kubectl-keyserver", "/usr/bin/kubectl_complete-keyserver"} {
		var out, errOut bytes.Buffer
		code := Run(name, []string{"audit", "verify"}, nil, &out, &errOut)
		if code != program.ExitUsage || out.Len() > 0 || !strings.Contains(errOut.String(), "link it to keyserverctl") {
			t.Errorf("%s: exit %d\n%s%s", name, code, out.String(), errOut.String())
		}
	}
}

// TestPanic checks that a panic exits with 1. Code 2 means a wrong command line, or that a plan has changes.
func TestPanic(t *testing.T) {
	var errOut bytes.Buffer
	if code := Main([]string{"version"}, nil, broken{}, &errOut); code != program.ExitError {
		t.Errorf("exit code %d", code)
	}
	sentence, stack, _ := strings.Cut(errOut.String(), "\n")
	if !strings.HasSuffix(sentence, "please report it: the writer; is broken") || !strings.Contains(stack, "broken.Write") {
		t.Errorf("got %s", errOut.String())
	}
}

// TestOneLine checks that an error is one line without characters that control the terminal.
func TestOneLine(t *testing.T) {
	for given, want := range map[string]string{
		"a: b\nc\r\nd\n":                   "a: b; c; d",
		"Schl\u00fcssel \u9375 \U0001f511": "Schl\u00fcssel \u9375 \U0001f511",
		"\x1b[2J\x1b]0;title\a":            "\ufffd[2J\ufffd]0;title\ufffd",
		"\u009b2J\t\x7f":                   "\ufffd2J\ufffd\ufffd",
		"\u202egnp.exe\u2066\u200e":        "\ufffdgnp.exe\ufffd\ufffd",
		"a\xffb":                           "a\ufffdb",
	} {
		if got := program.OneLine(errors.New(given)); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

// TestCauses: the last line of a command and each line of the log include the causes of errors, at
// any depth of wrapping.
func TestCauses(t *testing.T) {
	err := fmt.Errorf("start: %w", fault.New(fault.StoreUnavailable, "the database does not respond; try again").Because(errors.New("SQLSTATE 25006")))
	if got := program.OneLine(err); !strings.HasSuffix(got, "try again: SQLSTATE 25006") {
		t.Error(got)
	}
	var log bytes.Buffer
	logger, made := program.NewLogger(&log, "info")
	if made != nil {
		t.Fatal(made)
	}
	logger.Warn("a part of the service fails", "error", err)
	if !strings.Contains(log.String(), `try again: SQLSTATE 25006"`) {
		t.Error(log.String())
	}
}
