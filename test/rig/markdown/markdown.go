// Package markdown reads what documents have people copy.
package markdown

import (
	"slices"
	"strings"
)

// Block is what a document has people copy.
type Block struct {
	Heading  string // the nearest above, without its marks
	Language string // of the fence
	Text     string
	NotRun   string // why no test runs it, where the document says so: <!-- not run: WHY --> above the fence
}

// Languages are those of commands.
var Languages = []string{"sh", "bash", "shell", "console"}

// Blocks are the shell commands of a Markdown document, in their order, also those that no
// test runs.
func Blocks(document string) []Block {
	return slices.DeleteFunc(Fences(document), func(b Block) bool { return b.Language != "sh" })
}

// Fences are all fenced blocks of a Markdown document that begin a line, in their order.
func Fences(document string) []Block {
	var blocks []Block
	heading, why, inside := "", "", false
	for line := range strings.Lines(document) {
		text := strings.TrimSuffix(line, "\n")
		language, fence := strings.CutPrefix(text, "```")
		switch {
		case inside && text == "```":
			inside = false
		case inside:
			blocks[len(blocks)-1].Text += line
		case fence:
			inside = true
			blocks = append(blocks, Block{Heading: heading, Language: language, NotRun: why})
		case strings.HasPrefix(text, "#"):
			heading = strings.TrimLeft(text, "# ")
		}
		why = ""
		if said, is := strings.CutPrefix(text, "<!-- not run: "); is && !inside {
			why = strings.TrimSuffix(said, " -->")
		}
	}
	return blocks
}
