package auditverify

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// ReadNoted reads the key of an audit log and the files with its noted checkpoints. Both are optional.
func ReadNoted(key string, checkpoints []string) (options tree.Options, err error) {
	if key != "" {
		if options.Key, err = ReadVerifier(key); err != nil {
			return options, err
		}
	}
	for _, file := range checkpoints {
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

// ReadLines reads a file as a text that ends with one line break.
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
