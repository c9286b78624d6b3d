package auditverify

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/pflag"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// Noted has the flags for the key of an audit log and for its checkpoints that a user saved earlier. All are optional.
type Noted struct {
	Key         string
	Checkpoints []string
}

// Bind adds the flags.
func (n *Noted) Bind(f *pflag.FlagSet) {
	BindKey(f, &n.Key)
	f.StringArrayVar(&n.Checkpoints, "checkpoint", nil, "file with a checkpoint that was saved earlier; may be given several times")
}

// BindKey adds only the flag for the key of an audit log.
func BindKey(f *pflag.FlagSet, key *string) {
	f.StringVar(key, "key", "", "key that signs the checkpoints, as GET /api/audit/key returns it, or a file that contains it")
}

// Read reads the named files.
func (n *Noted) Read() (options tree.Options, err error) {
	if n.Key != "" {
		if options.Key, err = ReadVerifier(n.Key); err != nil {
			return options, err
		}
	}
	for _, file := range n.Checkpoints {
		text, err := ReadLines("--checkpoint", file)
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

// ReadLines reads a file and makes the text end with exactly one line break.
func ReadLines(flag, file string) ([]byte, error) {
	text, err := program.ReadFile(flag, file)
	return []byte(strings.TrimRight(text, "\r\n") + "\n"), err
}

// ReadVerifier parses text: a key, a response of GET /api/audit/key, or the name of a file with one of the two.
func ReadVerifier(text string) (note.Verifier, error) {
	if key, err := parseVerifier(text); err == nil {
		return key, nil
	}
	content, err := program.ReadFile("--key", text)
	if err != nil {
		return nil, program.Usagef("--key is neither a key as GET /api/audit/key returns it nor a readable file: %w", err)
	}
	key, err := parseVerifier(content)
	if err != nil {
		return nil, fmt.Errorf("--key: %s contains no key as GET /api/audit/key returns it", text)
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
