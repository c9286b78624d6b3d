package commands

import (
	"bytes"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// TestBackupRefusesTwoLogins: the flags must give exactly one login.
func TestBackupRefusesTwoLogins(t *testing.T) {
	const recipient = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
	for name, tc := range map[string]struct {
		flags []string
		code  int
		says  string
	}{
		"nobody":                 {nil, program.ExitUsage, "--password-file is missing"},
		"a token and a password": {[]string{"--token-file", "token", "--password-file", "password"}, program.ExitUsage, "--password-file is for a login with a password, but --token-file is for one with a token"},
		"a token and a name":     {[]string{"--token-file", "token", "--username", "admin"}, program.ExitUsage, "--username is for a login with a password, but --token-file is for one with a token"},
		"a token that is not":    {[]string{"--token-file", "/nowhere/token"}, program.ExitError, "read the service account token: open /nowhere/token"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			args := append([]string{"backup", "--server", "https://127.0.0.1:1", "--to", t.TempDir(), "--recipient", recipient}, tc.flags...)
			if code := Main(args, nil, &out, &out); code != tc.code || !strings.Contains(out.String(), tc.says) {
				t.Errorf("it ends with %d, want %d and %q:\n%s", code, tc.code, tc.says, &out)
			}
		})
	}
}
