package ctl

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestCommandsOfDocuments checks that the commands and flags in the documents exist.
func TestCommandsOfDocuments(t *testing.T) {
	shown := regexp.MustCompile("(?m)(?:keyserverctl|kubectl keyserver) ([^`\\n|)]+)")
	for name, least := range map[string]int{"ctl.md": 6, "guides/session.md": 14, "guides/verify-the-audit-log.md": 2, "guides/support-bundle.md": 1} {
		page, err := os.ReadFile("../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		found := shown.FindAllStringSubmatch(string(page), -1)
		if len(found) < least {
			t.Errorf("%s shows %d commands only", name, len(found))
		}
		for _, one := range found {
			cmd, rest, err := theCommand(t).Find(strings.Fields(one[1]))
			if err != nil || !cmd.Runnable() {
				t.Errorf("%s: %s: %v", name, one[0], err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
				t.Errorf("%s: %s: %v", name, one[0], err)
			}
		}
	}
}
