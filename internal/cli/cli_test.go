package cli

import (
	"bytes"
	"strings"
	"testing"
)

// broken fails as no writer should.
type broken struct{}

func (broken) Write([]byte) (int, error) { panic("the writer\nis broken") }

// A mistake of the program is no wrong command line and, of a plan, no change.
func TestPanic(t *testing.T) {
	var errOut bytes.Buffer
	if code := Main([]string{"version"}, nil, broken{}, &errOut); code != exitError {
		t.Errorf("exit code %d", code)
	}
	sentence, stack, _ := strings.Cut(errOut.String(), "\n")
	if !strings.HasSuffix(sentence, "please report it: the writer; is broken") || !strings.Contains(stack, "broken.Write") {
		t.Errorf("got %s", errOut.String())
	}
}
