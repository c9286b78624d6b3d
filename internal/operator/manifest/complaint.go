package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
)

// unreadable replaces parser messages that are neither in complaints nor in reworded.
const unreadable = "it cannot be read"

// complaints are the parser messages that users get unchanged. Other messages may quote the file, which may be secret.
var complaints = []string{
	"block sequence entries are not allowed in this context",
	"control characters are not allowed",
	"could not find expected ':'",
	"did not find expected ',' or ']'",
	"did not find expected ',' or '}'",
	"did not find expected '-' indicator",
	"did not find expected <document start>",
	"did not find expected alphabetic or numeric character",
	"did not find expected comment or line break",
	"did not find expected hexdecimal number",
	"did not find expected key",
	"did not find expected node content",
	"did not find expected whitespace or line break",
	"document contains excessive aliasing",
	"found a tab character that violates indentation",
	"found a tab character where an indentation space is expected",
	"found character that cannot start any token",
	"found incompatible YAML document",
	"found invalid Unicode character escape code",
	"found undefined tag handle",
	"found unexpected document indicator",
	"found unexpected end of stream",
	"found unknown escape character",
	"mapping keys are not allowed in this context",
	"mapping values are not allowed in this context",
}

// reworded replaces parser messages that quote the file. begins is the start of the message, says the replacement.
var reworded = []struct{ begins, says string }{
	{"key ", "a key occurs twice"},
	{"unknown anchor", "an alias (*) has no anchor (&)"},
	{"anchor ", "an anchor (&) contains itself"},
	{"cannot decode", "a value does not match its tag (!!)"},
	{"!!binary", "a value does not match its tag (!!)"},
	{"invalid map key", "a key is a list or a mapping; put {{ }} in quotes"},
	{"unsupported map key", "a key is neither text nor a number"},
	{"map merge", "the value of << is not a mapping"},
	{"json: unsupported value", "a number is not finite"},
}

var placed = regexp.MustCompile(`^(?:yaml: )?(?:line ([0-9]+): )?`)

// redactError returns the parser error without content of the file. The parser counts lines within a document. before is the
// number of lines before the document.
func redactError(err error, before int) error {
	sentences := []string{err.Error()}
	var several *goyaml.TypeError
	if errors.As(err, &several) {
		sentences = several.Errors
	}
	var says []string
	for _, s := range sentences {
		at := placed.FindStringSubmatch(s)
		sentence := vetted(s[len(at[0]):])
		if line, err := strconv.Atoi(at[1]); err == nil {
			sentence = fmt.Sprintf("line %d: %s", line+before, sentence)
		}
		says = append(says, sentence)
	}
	return errors.New("is not YAML that can be applied: " + strings.Join(slices.Compact(says), "; "))
}

func vetted(sentence string) string {
	if slices.Contains(complaints, sentence) {
		return sentence
	}
	for _, r := range reworded {
		if strings.HasPrefix(sentence, r.begins) {
			return r.says
		}
	}
	return unreadable
}
