package commands

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

func TestUnknownVariables(t *testing.T) {
	root, err := newRoot(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		reason, line string
		refused      bool
	}{
		{"a flag of serve", "KEYSERVER_DATA_DIR=/data", false},
		{"a flag of another command, as containers of one Pod share settings", "KEYSERVER_CLUSTER_NAME=here", false},
		{"somebody else's", "KEYSERVERS=3", false},
		{"a mistake", "KEYSERVER_DATADIR=/data", true},
		{"a mistake, with nothing in it", "KEYSERVER_MAX_CONECTIONS=", true},
		{"a mistake that looks like the port of a service", "KEYSERVER_LISTEN_PORT=8443", true},
		{"a mistake that looks like a service", "KEYSERVER_SERVICE=x", true},
		{"the address of a Service", "KEYSERVER_SERVICE_HOST=10.0.0.1", false},
		{"its port", "KEYSERVER_SERVICE_PORT=443", false},
		{"its port by name", "KEYSERVER_SERVICE_PORT_API=443", false},
		{"its place", "KEYSERVER_PORT=tcp://10.0.0.1:443", false},
		{"the place of a port", "KEYSERVER_PORT_443_TCP=tcp://10.0.0.1:443", false},
		{"its parts", "KEYSERVER_PORT_443_TCP_ADDR=10.0.0.1", false},
		{"another Service", "KEYSERVER_PEERS_PORT_9443_TCP_PROTO=tcp", false},
		{"the address of another Service", "KEYSERVER_METRICS_SERVICE_HOST=10.0.0.1", false},
	} {
		err := program.RefuseUnknownVariables(root, []string{"PATH=/bin", c.line})
		name, value, _ := strings.Cut(c.line, "=")
		switch {
		case (err != nil) != c.refused:
			t.Errorf("%s: %s is answered %v", c.reason, c.line, err)
		case err != nil && (!strings.Contains(err.Error(), name) || value != "" && strings.Contains(err.Error(), value)):
			t.Errorf("%s: the sentence %q names the variable alone", c.reason, err)
		}
	}
}

// TestVariablesOfOtherPrograms checks that a program accepts variables of other programs, because a Pod shares them.
func TestVariablesOfOtherPrograms(t *testing.T) {
	environment := []string{"KEYSERVER_DATA_DIR=/data", "KEYSERVER_LINEAGE=AAAAAQECAwQFBgcI", "KEYSERVER_SOCKET_MODE=0660"}
	for _, name := range []string{"keyserver-agent", "keyserver-operator"} {
		if err := program.RefuseUnknownVariables(&cobra.Command{Use: name}, environment); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
