// Package shell is for tests that run the commands of a document as they stand there.
// Whoever imports it needs bash, curl, jq and age, which is how make knows
// (hack/needs.sh).
package shell

import (
	"os/exec"
	"strings"
	"testing"
)

// Need fails a test where one of them is not there.
func Need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"bash", "curl", "jq", "age-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed, which the commands use: install it, or run the suite by make test PKG=...", program)
		}
	}
}

// Block is what a document has people copy.
type Block struct {
	Heading string // the nearest above, without its marks
	Text    string
}

// Blocks are the shell commands of a Markdown document, in their order.
func Blocks(document string) []Block {
	var blocks []Block
	heading, inside := "", false
	for line := range strings.Lines(document) {
		switch text := strings.TrimSuffix(line, "\n"); {
		case inside && text == "```":
			inside = false
		case inside:
			blocks[len(blocks)-1].Text += line
		case text == "```sh":
			inside = true
			blocks = append(blocks, Block{Heading: heading})
		case strings.HasPrefix(text, "#"):
			heading = strings.TrimLeft(text, "# ")
		}
	}
	return blocks
}
