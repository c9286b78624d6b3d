package commands

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// readNoted reads the key of a log and checkpoints that were noted of it, either of which may
// be missing.
func readNoted(key string, checkpoints []string) (options tree.Options, err error) {
	if key != "" {
		if options.Key, err = readVerifier(key); err != nil {
			return options, err
		}
	}
	for _, file := range checkpoints {
		text, err := readLines("--checkpoint", file)
		if err != nil {
			return options, err
		}
		head, _, err := tree.Parse(text)
		if err == nil && options.Key != nil {
			_, err = tree.Open(text, options.Key)
		}
		if err != nil {
			return options, fmt.Errorf("--checkpoint %s: %w", file, err)
		}
		options.Noted = append(options.Noted, tree.Noted{Name: file, Head: head})
	}
	return options, nil
}

// readLines reads a text that ends with one line break, however it was copied.
func readLines(flag, file string) ([]byte, error) {
	text, err := program.ReadFile(flag, file)
	return []byte(strings.TrimRight(text, "\r\n") + "\n"), err
}

// readVerifier reads a key, what GET /api/audit/key answers, or the file that holds one of
// the two.
func readVerifier(text string) (note.Verifier, error) {
	if key, err := parseVerifier(text); err == nil {
		return key, nil
	}
	content, err := program.ReadFile("--key", text)
	if err != nil {
		return nil, program.Usagef("--key is neither a key as GET /api/audit/key answers it nor a file that can be read: %w", err)
	}
	key, err := parseVerifier(content)
	if err != nil {
		return nil, fmt.Errorf("--key: %s holds no key as GET /api/audit/key answers it", text)
	}
	return key, nil
}

func parseVerifier(text string) (note.Verifier, error) {
	var answer schema.AuditKey
	if json.Unmarshal([]byte(text), &answer, json.RejectUnknownMembers(true)) == nil {
		text = answer.Key
	}
	return note.NewVerifier(strings.TrimSpace(text))
}

// verification is what was found of a trail.
type verification struct {
	expected bool // heads were given
	remote   bool // of a key server; there is nothing about chains
	options  tree.Options
	chains   audit.Report
	tree     tree.Report
	filters  error // why filters may hide rows of the trail
}

// show prints it.
func (f *verification) show(out io.Writer) error {
	total := f.chains.Total + f.tree.Total
	if !f.remote && f.chains.Chains == 0 && total == 0 {
		return errors.New("the database has no audit trail: no key server has written to it; a copy of an embedded database " +
			"needs keyserver.db-wal, too, or must be made while no server runs")
	}
	var b strings.Builder
	for _, f := range f.chains.Findings {
		fmt.Fprintf(&b, "chain %d, position %d, seq %d: %s\n", f.Chain, f.Position, f.Seq, f.Problem)
	}
	for _, f := range f.tree.Findings {
		fmt.Fprintf(&b, "tree, seq %d: %s\n", f.Seq, f.Problem)
	}
	rows := f.chains.Rows
	if f.remote {
		rows = f.tree.Head.Size
	}
	if total == 0 {
		f.intact(&b, rows)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	if total > 0 {
		return errors.Join(fmt.Errorf("the audit trail is not intact: %d findings in %d rows", total, rows), f.filters)
	}
	return f.filters
}

func (f *verification) intact(b *strings.Builder, rows int64) {
	switch {
	case f.remote:
		fmt.Fprintf(b, "audit trail intact: %d rows\n", rows)
	case f.filters != nil:
		fmt.Fprintf(b, "the rows of the audit trail are intact, and what finds them is not: %d rows in %d chains\n", rows, f.chains.Chains)
	default:
		fmt.Fprintf(b, "audit trail intact: %d rows in %d chains\n", rows, f.chains.Chains)
	}
	if f.options.First > 1 {
		fmt.Fprintf(b, "It begins at row %d. The rows before it are in the audit archive: give that as --archive.\n", f.options.First)
	}
	for _, h := range f.chains.Heads {
		fmt.Fprintf(b, "head %s\n", headText(h))
	}
	head := f.tree.Head
	if head.Size > 0 {
		fmt.Fprintf(b, "tree of %d rows, root %s\n", head.Size, base64.StdEncoding.EncodeToString(head.Root[:]))
	}
	for _, n := range f.options.Noted {
		fmt.Fprintf(b, "continues %s, of %d rows\n", n.Name, n.Head.Size)
	}
	if f.tree.Newer > 0 {
		fmt.Fprintf(b, "%d newer rows are not in the tree yet: they are held against their chains only\n", f.tree.Newer)
	}
	switch {
	case head.Size == 0:
	case f.options.Key != nil:
		fmt.Fprintf(b, "signed by %s\n", f.options.Key.Name())
	default:
		fmt.Fprintf(b, "signed by %s, as the checkpoint says. No --key was given: this shows nothing\n"+
			"against somebody who could change the database and sign it with a key of his own.\n", strings.Join(f.tree.Signers, ", "))
	}
	if !f.expected && len(f.options.Noted) == 0 {
		b.WriteString("No head that was noted before was given, and no checkpoint. So this does not show whether rows were removed\n" +
			"from the end, or everything was written anew, by somebody who could write to the database: note what GET\n" +
			"/api/audit/checkpoint answers elsewhere, and give it to the next run as --checkpoint.\n")
	}
}
