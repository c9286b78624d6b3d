package server

import (
	"strings"
	"testing"
	"time"
)

// TestWhatIsNoReplica checks that the error for each invalid flag names the flag and a remedy.
func TestWhatIsNoReplica(t *testing.T) {
	const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	for name, tc := range map[string]struct {
		given    Replication
		database string
		says     string
	}{
		"PostgreSQL":  {Replication{ReplicateTo: "/replica", ReplicateRecipient: recipient}, "postgres://localhost/keys", "archive with PostgreSQL itself"},
		"NoRecipient": {Replication{ReplicateTo: "/replica"}, "", "--replicate-recipient"},
		"NoPlace":     {Replication{ReplicateRecipient: recipient}, "", "requires --replicate-to"},
		"Recipient":   {Replication{ReplicateTo: "/replica", ReplicateRecipient: "age1"}, "", "--replicate-recipient must be"},
		"Scheme":      {Replication{ReplicateTo: "ftp://replica", ReplicateRecipient: recipient}, "", "--replicate-to: the URL must be"},
		"Short":       {Replication{ReplicateTo: "/replica", ReplicateRecipient: recipient, ReplicateKeep: time.Minute}, "", "--replicate-keep is 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Replication: tc.given, DatabaseURL: tc.database}
			if err := cfg.validateReplication(); err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v does not say %q", err, tc.says)
			}
		})
	}
}
