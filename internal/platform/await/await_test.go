package await

import (
	"context"
	"errors"
	"testing"
)

func TestAnswer(t *testing.T) {
	why, broken := errors.New("enough"), errors.New("broken")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if got, err := Result(ctx, func() (int, error) { select {} }); got != 0 || !errors.Is(err, why) {
		t.Errorf("what never answers answers %d, %v", got, err)
	}
	if got, err := Result(t.Context(), func() (int, error) { return 1, broken }); got != 1 || !errors.Is(err, broken) {
		t.Errorf("what fails answers %d, %v", got, err)
	}
}
