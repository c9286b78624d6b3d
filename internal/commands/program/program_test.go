package program

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/spf13/cobra"
)

// chosen is an error that chooses its exit code.
type chosen struct{ error }

func (chosen) ProgramExit() int { return 5 }

// TestExitCodes checks that the program does not exit with the exit code of another process that it ran.
func TestExitCodes(t *testing.T) {
	ended := exec.Command("sh", "-c", "exit 2").Run()
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"done":            {nil, ExitOK},
		"failed":          {fmt.Errorf("start etcd: %w", ended), ExitError},
		"a wrong flag":    {fmt.Errorf("serve: %w", Usagef("--listen is missing")), ExitUsage},
		"chosen":          {fmt.Errorf("get: %w", chosen{ended}), 5},
		"without message": {Exit(2), 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := Program{Name: "test", Root: func([]string) (*cobra.Command, error) {
				return &cobra.Command{RunE: func(*cobra.Command, []string) error { return c.err }}, nil
			}}
			var errOut bytes.Buffer
			if code := p.Run(nil, nil, &bytes.Buffer{}, &errOut); code != c.want {
				t.Errorf("exit code %d, want %d: %s", code, c.want, errOut.String())
			}
		})
	}
}
