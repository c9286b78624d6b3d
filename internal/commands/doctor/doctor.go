// Package doctor looks whether what should hold of a key server does, without
// changing anything.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore/datadir"
)

// Check is one thing that should hold.
type Check struct {
	Name string
	// Look calls found with a line for each thing that does not hold, and answers
	// in words what does. An error says that it could not look.
	Look func(ctx context.Context, found func(line string) error) (holds string, err error)
}

// ErrFindings is wrapped where something does not hold.
var ErrFindings = errors.New("something does not hold")

// Run looks at all checks and writes one line for each, behind a line for each
// finding. What could not be looked at is a finding, too.
func Run(ctx context.Context, out io.Writer, checks []Check) error {
	var all, failed int
	for _, c := range checks {
		findings := 0
		holds, err := c.Look(ctx, func(line string) error {
			findings++
			_, err := fmt.Fprintf(out, "%s: %s\n", c.Name, oneLine(line))
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			findings++
			_, err = fmt.Fprintf(out, "%s: FAILED: %s\n", c.Name, oneLine(fault.Explain(err)))
		case findings > 0:
			_, err = fmt.Fprintln(out, strings.TrimSuffix(fmt.Sprintf("%s: FAILED: %s; %s", c.Name, counted(findings), oneLine(holds)), "; "))
		default:
			_, err = fmt.Fprintf(out, "%s: ok: %s\n", c.Name, oneLine(holds))
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
	_, err := fmt.Fprintf(out, "everything that was looked at holds: %d checks\n", len(checks))
	return err
}

func counted(findings int) string {
	if findings == 1 {
		return "1 finding"
	}
	return fmt.Sprintf("%d findings", findings)
}

// maxLine is more than anybody reads of one line.
const maxLine = 4 << 10

// oneLine is what others have said, as one line that a terminal does not act upon.
func oneLine(text string) string {
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + " (cut)"
	}
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.Join(lines, "; "))
}

// Volume is the check of the volume of a data directory.
func Volume(dir string) Check {
	return Check{"volume", func(context.Context, func(string) error) (string, error) {
		v, err := datadir.VolumeOf(dir)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%d of %d MiB are free", v.Free>>20, v.Size>>20), v.Check(0)
	}}
}

// Database are the checks of a database that is open for reading, whose
// key-encryption key the URL names.
func Database(store *sqlstore.Store, kek func() (url string, err error)) []Check {
	opened := errors.New("the data key is not open")
	return []Check{
		{"schema", func(ctx context.Context, found func(string) error) (string, error) {
			holds := "the database is of this version" // an older one is not opened
			if newer := store.Ahead(); newer != "" {
				holds = newer
			}
			differences, err := store.CheckSchema(ctx)
			for _, d := range differences {
				if err == nil {
					err = found(d.Text)
				}
			}
			return holds, err
		}},
		{"key", func(ctx context.Context, found func(string) error) (string, error) {
			ring, err := openKey(ctx, store, kek)
			if err != nil {
				return "", err
			}
			store.UseRowKey(ring.RowKey())
			if opened = nil; !ring.RowsSealed() {
				err = found("the rows have no MACs yet: start the server once with this version")
			}
			return "the key-encryption key opens the data key", err
		}},
		{"settings", func(ctx context.Context, found func(string) error) (string, error) {
			if opened != nil {
				return "", opened
			}
			for _, name := range bootstrap.Settings {
				_, err := store.Setting(ctx, name)
				if errors.Is(err, sqlstore.ErrNotFound) {
					err = found(name + " is missing: somebody took it away, and the server does not start without it; put it back from a backup")
				}
				if err != nil && fault.CodeOf(err) != fault.StoreTampered { // which is among the rows
					return "", err
				}
			}
			return "every setting that a start needs is there", nil
		}},
		{"rows", func(ctx context.Context, found func(string) error) (string, error) {
			if opened != nil {
				return "", opened
			}
			rows, err := store.CheckRows(ctx, func(f rowmac.Finding) error { return found(f.String()) })
			return fmt.Sprintf("%d rows were compared with their MACs", rows), err
		}},
	}
}

func openKey(ctx context.Context, store *sqlstore.Store, kek func() (string, error)) (_ *keyring.Keyring, err error) {
	url, err := kek()
	if err != nil {
		return nil, err
	}
	keeper, err := keyring.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, keeper.Close()) }()
	return keyring.Existing(ctx, keeper, store.Setting)
}
