package sources

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// TestIssuerThatDoesNotAnswer checks that an object waits if the issuer cannot be read.
func TestIssuerThatDoesNotAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		issuer *Issuer
		says   string
	}{
		"NoCluster": {nil, "there is no cluster"},
		"Refused":   {NewIssuer(func(context.Context) (string, error) { return "", errors.New("forbidden") }), "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.issuer.URL(t.Context())
			var p *connection.Problem
			if !errors.As(err, &p) || p.Reason != v1beta1.ReasonDependencyNotReady ||
				!strings.Contains(p.Message, tc.says) || !strings.Contains(p.Message, "spec.serviceAccount.issuer") {
				t.Errorf("answers %v", err)
			}
		})
	}
}

func TestIssuerIsAskedUntilItAnswers(t *testing.T) {
	asked := 0
	issuer := NewIssuer(func(context.Context) (string, error) {
		if asked++; asked == 1 {
			return "", errors.New("not yet")
		}
		return "https://issuer.example", nil
	})
	for i := range 4 {
		url, err := issuer.URL(t.Context())
		if (i == 0) != (err != nil) || i > 0 && url != "https://issuer.example" {
			t.Errorf("try %d answers %q, %v", i, url, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
