// Command keyserver-dev runs all of keyserver-operator on one machine. It is for development and not part of a release.
package main

import (
	"os"

	"github.com/keyserver-operator/keyserver-operator/cmd/keyserver-dev/up"
)

func main() {
	os.Exit(up.Program().Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
