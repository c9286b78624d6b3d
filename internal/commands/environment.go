package commands

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refuseUnknownVariables refuses the environment where a variable of ours stands for no flag
// of any command: it was meant to say something. One that stands for a flag of another
// command is passed over, because containers share their settings.
func refuseUnknownVariables(root *cobra.Command, environment []string) error {
	known := map[string]bool{}
	eachFlag(root, func(f *pflag.Flag) { known[envName(f.Name)] = true })
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
	return usagef("environment variable %s stands for no flag of any command; correct or remove it, and see %s --help", unknown[0], root.Name())
}

func eachFlag(cmd *cobra.Command, do func(*pflag.Flag)) {
	cmd.LocalFlags().VisitAll(do)
	for _, sub := range cmd.Commands() {
		eachFlag(sub, do)
	}
}

// What Kubernetes puts into the environment of each container for a Service whose name
// begins with keyserver, unless the Pod has enableServiceLinks: false.
var (
	serviceName  = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	servicePort  = regexp.MustCompile(`^[A-Z0-9_]+_PORT$`)
	servicePlace = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

func ofService(name, value string) bool {
	return serviceName.MatchString(name) || servicePort.MatchString(name) && servicePlace.MatchString(value)
}
