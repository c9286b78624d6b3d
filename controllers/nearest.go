package controllers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

// maxShownName is the maximum number of characters that a message shows of an unknown name.
const maxShownName = 32

// unknownNames returns a message about names that the key server does not have. It suggests similar known names. list
// says where users can find all names.
func unknownNames(unknown, known []string, list string) string {
	var quoted, meant []string
	for _, name := range unknown {
		if near := nearest(name, known); near != "" && len(quoted) < 3 && !slices.Contains(meant, fmt.Sprintf("%q", near)) {
			meant = append(meant, fmt.Sprintf("%q", near))
		}
		shown := []rune(fmt.Sprintf("%q", name))
		if len(shown) > maxShownName {
			shown = append(shown[:maxShownName], '…', '"')
		}
		quoted = append(quoted, string(shown))
	}
	says := "the key server does not know " + brief.List(quoted) + "; "
	if len(meant) == 0 {
		return says + list
	}
	return says + "did you mean " + strings.Join(meant, ", ") + "?"
}

// nearest returns the most similar known name, or "" if more than a third of the longer name differs. It ignores case
// and white space.
func nearest(name string, known []string) (best string) {
	plain := func(s string) []rune { return []rune(strings.ToLower(strings.Join(strings.Fields(s), ""))) }
	least, asked := -1, plain(name)
	for _, k := range slices.Sorted(slices.Values(known)) {
		other := plain(k)
		if d := distance(asked, other); d*3 <= max(len(asked), len(other)) && (least < 0 || d < least) {
			least, best = d, k
		}
	}
	return best
}

// distance is the Levenshtein distance: the number of characters to insert, remove or replace to turn a into b.
func distance(a, b []rune) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range b {
			replaced := diagonal
			if x != y {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
