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
	t.Skip(sentence(what, remedy)) // only in a plain "go test": the make target that provides the program sets Variable
}

// Server skips the test if -short excludes tests of servers. The parameter what names the server, and target the make
// target that runs the test.
func Server(t testing.TB, what, target string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short excludes tests that need %s; run %s", what, target)
	}
}

// Suite is like Missing, for use in TestMain. It prints the reason and returns the exit code.
func Suite(what, remedy string) int {
	fmt.Fprintln(os.Stderr, sentence(what, remedy))
	if os.Getenv(Variable) == "" {
		return 0
	}
	return 1
}

func sentence(what, remedy string) string { return what + " is missing; run " + remedy }
