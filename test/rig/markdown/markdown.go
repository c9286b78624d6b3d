// Package markdown reads the commands in documents.
package markdown

import (
	"slices"
	"strings"
)

// Block is one fenced block of a document.
type Block struct {
	Heading  string // the nearest heading above, without its marks
	Language string // of the fence
	Text     string
	NotRun   string // reason why no test runs it, from <!-- not run: WHY --> above the fence; else empty
}

// Languages are the fence languages of commands.
var Languages = []string{"sh", "bash", "shell", "console"}

// Blocks returns the sh blocks of a Markdown document in order, including those that no test runs.
func Blocks(document string) []Block {
	return slices.DeleteFunc(Fences(document), func(b Block) bool { return b.Language != "sh" })
}

// Fences returns all fenced blocks of a Markdown document in order. A fence must start its line.
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
