package pgtest

import (
	"context"
	"testing"
)

// Template creates the template of Copy without a copy.
func Template(t testing.TB, name string, fill func(ctx context.Context, url string) error) error {
	t.Helper()
	return fastOne(t).template(name, fill)
}
