// Package need decides what a test does if this machine lacks a program that the test uses.
//
// "make check", "make test" and "make test-system" provide all programs and set Variable:
// then a missing program fails the test. A plain "go test" skips the test instead and names
// the target that runs it.
package need

import (
	"fmt"
	"os"
	"testing"
)

// Variable is set by hack/provide.sh.
const Variable = "RIG_PROVIDED"

// Missing skips or fails the test. what names the missing program, remedy the make target that
// provides it.
func Missing(t testing.TB, what, remedy string) {
	t.Helper()
	if os.Getenv(Variable) != "" {
		t.Fatal(sentence(what, remedy))
	}
	// On a machine with nothing but Go, the test is skipped with its reason. The target that provides the program sets
	// Variable, so there the test fails.
	t.Skip(sentence(what, remedy))
}

// Server skips the test if -short excludes tests of servers. what names the server, target the make target that
// runs the test.
func Server(t testing.TB, what, target string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short excludes tests that need %s; run %s", what, target)
	}
}

// Suite is Missing for a TestMain. It prints the sentence and returns the exit code.
func Suite(what, remedy string) int {
	fmt.Fprintln(os.Stderr, sentence(what, remedy))
	if os.Getenv(Variable) == "" {
		return 0
	}
	return 1
}

func sentence(what, remedy string) string { return what + " is missing; run " + remedy }
