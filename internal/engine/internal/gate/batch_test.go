package gate

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestWithoutRetry checks that a retryable error loses only what asks for a retry.
func TestWithoutRetry(t *testing.T) {
	overloaded := fault.Temporary(fault.Overloaded, fault.ScopeSession, time.Second, "wait")
	for _, err := range []error{overloaded, fmt.Errorf("store: %w", overloaded)} {
		got := fault.As(WithoutRetry(err))
		if got.Code != fault.Overloaded || got.Retryable || got.Scope != "" || got.RetryAfter != 0 || !errors.Is(got, err) {
			t.Errorf("got %+v", got)
		}
	}
	for _, err := range []error{nil, errors.New("other"), fault.New(fault.ACLDenied, "no entry")} {
		if got := WithoutRetry(err); got != err { //nolint:errorlint // it must be the same error
			t.Errorf("%v became %v", err, got)
		}
	}
}
