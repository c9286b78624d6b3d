package connection

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

// TestCallsAreCounted checks that calls are counted by KeyServer, operationId and code. Calls without a response are
// counted as UNAVAILABLE or OTHER.
func TestCallsAreCounted(t *testing.T) {
	count := counting("counted")
	for _, err := range []error{nil, nil, &client.Error{Code: "NOT_SAVED"}, &client.NetworkError{Err: errors.New("reset")}, errors.New("other")} {
		count("createRole", err)
	}
	for code, want := range map[string]float64{"OK": 2, "NOT_SAVED": 1, "UNAVAILABLE": 1, "OTHER": 1} {
		if got := testutil.ToFloat64(apiRequests.WithLabelValues("counted", "createRole", code)); got != want {
			t.Errorf("%s: %v, want %v", code, got, want)
		}
	}
}

// TestEveryIdentityIsObserved checks that calls of both logins are counted.
func TestEveryIdentityIsObserved(t *testing.T) {
	var told []string
	c := &Connections{dial: func(e Endpoint) (API, error) {
		told = append(told, e.Username)
		e.Observe("listRoles", nil)
		return nil, nil
	}}
	for _, name := range []string{"admin", "officer"} {
		if _, err := c.dialObserved(&Connection{Name: "observed"}, Endpoint{Username: name}); err != nil {
			t.Fatal(err)
		}
	}
	if got := testutil.ToFloat64(apiRequests.WithLabelValues("observed", "listRoles", "OK")); got != 2 || len(told) != 2 {
		t.Errorf("counted %v calls of %q", got, told)
	}
}
