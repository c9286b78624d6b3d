// Command variables prints the environment variables of the programs that serve, all of which accept each of
// them: internal/commands/program/variables.txt.
package main

import (
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/cmd/keyserver-dev/up"
	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
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
	slices.Sort(names)
	fmt.Println(strings.Join(slices.Compact(names), "\n"))
}
