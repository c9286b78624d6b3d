package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Check is a check of one part of an installation.
type Check struct {
	Name string
	// Run calls found with one line for each problem. It returns a summary of the check in holds. An error means that
	// the check could not be completed.
	Run func(ctx context.Context, found func(line string) error) (holds string, err error)
}

// ErrFindings is the error that Run wraps if there are findings.
var ErrFindings = errors.New("see the lines above")

// Run runs all checks. For each check it writes one line for each finding, and then one for the check. A check that
// could not be completed is a finding.
func Run(ctx context.Context, out io.Writer, checks []Check) error {
	var all, failed int
	for _, c := range checks {
		findings := 0
		holds, err := c.Run(ctx, func(text string) error {
			findings++
			_, err := fmt.Fprintf(out, "%s: %s\n", c.Name, line(text))
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			findings++
			_, err = fmt.Fprintf(out, "%s: FAILED: %s\n", c.Name, line(fault.Explain(err)))
		case findings > 0:
			_, err = fmt.Fprintln(out, strings.TrimSuffix(fmt.Sprintf("%s: FAILED: %s; %s", c.Name, counted(findings), line(holds)), "; "))
		default:
			_, err = fmt.Fprintf(out, "%s: ok: %s\n", c.Name, line(holds))
		}
		if err != nil {
			return err
		}
		if all += findings; findings > 0 {
			failed++
		}
	}
	if all > 0 {
		return fmt.Errorf("%s in %d of %d checks: %w", counted(all), failed, len(checks), ErrFindings)
	}
	_, err := fmt.Fprintf(out, "all checks passed: %d checks\n", len(checks))
	return err
}

func counted(findings int) string {
	if findings == 1 {
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", findings)
}

// maxLine is the maximum length in bytes of a printed text.
const maxLine = 4 << 10

// line returns untrusted text as one line of at most maxLine bytes.
func line(text string) string {
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + " (cut)"
	}
	return program.Line(text)
}
