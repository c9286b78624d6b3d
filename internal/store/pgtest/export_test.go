package pgtest

import (
	"context"
	"testing"
)

// Template creates a template as Copy does, without a copy of it.
func Template(t testing.TB, name string, fill func(ctx context.Context, url string) error) error {
	t.Helper()
	return fastOne(t).template(name, fill)
}
