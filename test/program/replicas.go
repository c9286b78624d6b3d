package program

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// KEK is the key-encryption key that all replicas share.
const KEK = "base64key://smGbjm71Nxd1Ig5FS0wj9SlbzAIrnolCz9bQQ6uAhl4="

// Replicas starts one "serve" process for each list of arguments. The processes run until the test ends. The arguments
// common name their database.
func (p Program) Replicas(t testing.TB, each [][]string, common ...string) (all []*Server) {
	t.Helper()
	dirs := t.TempDir()
	for i, own := range each {
		s, err := p.Serve(filepath.Join(dirs, strconv.Itoa(i)), slices.Concat(common, []string{"--kek", KEK}, own)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		all = append(all, s)
	}
	return all
}
