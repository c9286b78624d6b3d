package program

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ofPrograms lists the variables of all programs that serve, one in each line. "make generate" writes it.
//
//go:embed variables.txt
var ofPrograms string

// RefuseUnknownVariables returns a usage error if a variable has the prefix KEYSERVER_ but belongs to no flag.
// Variables for flags of other commands and programs are allowed, because containers share their settings.
func RefuseUnknownVariables(root *cobra.Command, environment []string) error {
	known := map[string]bool{}
	for _, name := range strings.Fields(ofPrograms) {
		known[name] = true
	}
	for _, name := range Variables(root) {
		known[name] = true
	}
	var unknown []string
	for _, line := range environment {
		name, value, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] && !ofService(name, value) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return Usagef("environment variable %s belongs to no flag of any command; correct or remove it, and see %s --help", unknown[0], root.Name())
}

// Variables returns the environment variables of all flags of the commands, sorted.
func Variables(root *cobra.Command) []string {
	var names []string
	eachFlag(root, func(f *pflag.Flag) {
		if f.Name != "help" {
			names = append(names, envName(f.Name))
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func eachFlag(cmd *cobra.Command, do func(*pflag.Flag)) {
	cmd.LocalFlags().VisitAll(do)
	for _, sub := range cmd.Commands() {
		eachFlag(sub, do)
	}
}

// Kubernetes sets such variables in each container if a Service's name begins with keyserver, unless the Pod has
// enableServiceLinks: false.
var (
	serviceName  = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	servicePort  = regexp.MustCompile(`^[A-Z0-9_]+_PORT$`)
	servicePlace = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

func ofService(name, value string) bool {
	return serviceName.MatchString(name) || servicePort.MatchString(name) && servicePlace.MatchString(value)
}
