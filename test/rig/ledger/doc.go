// Package ledger records what a key server acknowledged to the clients of a test, and later compares it with the state
// of the server. The suites that kill the server or other processes use it (test/crash, test/chaos).
//
// Objects has the state of keys, roles and other objects, MACs has the computed MACs, and Requests has every request
// with its answer. View reads the state of the server, and AuditLog its audit log. A Worker is a client that changes
// objects. A comparison returns its findings as text; Report fails the test if there are findings.
package ledger

import "testing"

// mostReported limits how many findings of one comparison are printed.
const mostReported = 5

// Report fails the test if there are findings.
func Report(t testing.TB, findings []string) {
	t.Helper()
	for i, one := range findings {
		if i == mostReported {
			t.Errorf("and %d more findings of this kind", len(findings)-mostReported)
			return
		}
		t.Error(one)
	}
}
