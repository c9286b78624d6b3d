// Command variables prints the environment variables of two groups of programs: programs that serve, and commands of
// keyserverctl that run in Pods. The programs that serve accept all of these variables
// (internal/commands/program/variables.txt).
package main

import (
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/cmd/keyserver-dev/up"
	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/kmsplugin"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

func main() {
	var names []string
	for _, p := range []program.Program{commands.Program(), agent.Program(kmsplugin.Command()), up.Program()} {
		root, err := p.Commands(nil)
		if err != nil {
			log.Fatal(err)
		}
		names = append(names, program.Variables(root)...)
	}
	client, err := ctl.Command("keyserverctl")
	if err != nil {
		log.Fatal(err)
	}
	// These commands run in Pods. The other commands of keyserverctl read no variables for their own flags.
	for _, words := range []string{"doctor", "support-bundle", "audit verify", "audit receipt verify"} {
		cmd, _, err := client.Find(strings.Fields(words))
		if err != nil {
			log.Fatal(err)
		}
		names = append(names, program.Variables(cmd)...)
	}
	slices.Sort(names)
	fmt.Println(strings.Join(slices.Compact(names), "\n"))
}
