package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
)

// maxCredential bounds what is read of a file that should hold a password or
// certificates.
const maxCredential = 1 << 20

// accessOptions are the flags that say how to reach one key server. They are
// those of a KeyServer's spec. A password comes from a file, never from the
// command line, which everybody on the machine can read.
type accessOptions struct {
	server       string
	caFile       string
	username     string
	passwordFile string
	officer      string
	officerFile  string
}

func (o *accessOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.server, "server", "", "URL of the key server's API, for instance https://keys.example:8443")
	f.StringVar(&o.caFile, "ca-file", "", "PEM certificates that the API's own is checked against; default: the system's")
	f.StringVar(&o.username, "username", engine.AdminName, "password principal to log in as")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the password of --username")
	f.StringVar(&o.officer, "officer-username", "", "security officer, where duties are split; default: --username")
	f.StringVar(&o.officerFile, "officer-password-file", "", "file with the password of --officer-username")
}

// access is what the flags come to. Parts that were not given are empty.
type access struct {
	url            string
	ca             string // PEM
	admin, officer *login
}

// login is a password principal. Only its name is ever printed.
type login struct{ name, password string }

// Format prints the name only.
func (l login) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("password of " + l.name)) }

// read reads the files that the flags name.
func (o accessOptions) read(cmd *cobra.Command) (access, error) {
	a := access{url: o.server}
	if strings.HasSuffix(strings.TrimRight(o.server, "/"), "/api") {
		return a, usagef("--server ends in /api; leave that out, each call adds it")
	}
	if (o.officer == "") != (o.officerFile == "") {
		return a, usagef("--officer-username and --officer-password-file go together; give both or neither")
	}
	if o.passwordFile == "" && (cmd.Flags().Changed("username") || o.officer != "") {
		return a, usagef("--password-file is missing; see %s --help", cmd.CommandPath())
	}
	var err error
	if o.caFile != "" {
		if a.ca, err = readCredential("--ca-file", o.caFile); err != nil {
			return a, err
		}
		if !x509.NewCertPool().AppendCertsFromPEM([]byte(a.ca)) {
			return a, fmt.Errorf("--ca-file: %s holds no PEM certificate", o.caFile)
		}
	}
	if a.admin, err = readLogin("--password-file", o.username, o.passwordFile); err != nil {
		return a, err
	}
	a.officer, err = readLogin("--officer-password-file", o.officer, o.officerFile)
	return a, err
}

// given reports whether any flag says something about a key server.
func (a access) given() bool { return a.url != "" || a.ca != "" || a.admin != nil }

func readLogin(flag, name, file string) (*login, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // not given, and that is no mistake
	}
	text, err := readCredential(flag, file)
	if err != nil {
		return nil, err
	}
	password := strings.TrimRight(text, "\r\n")
	if password == "" {
		return nil, fmt.Errorf("%s: %s is empty", flag, file)
	}
	return &login{name: name, password: password}, nil
}

func readCredential(flag, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()                                                //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxCredential+1)) // a device or a pipe tells no size
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	if len(content) > maxCredential {
		return "", fmt.Errorf("%s: %s is longer than %d bytes", flag, file, maxCredential)
	}
	return string(content), nil
}

// client makes a client that logs in as one of the two.
func (a access) client(l *login, userAgent string) (*client.Client, error) {
	var roots *x509.CertPool
	if a.ca != "" {
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(a.ca))
	}
	c, err := client.New(client.Options{
		BaseURL: a.url, RootCAs: roots, UserAgent: userAgent,
		Credentials: client.PasswordCredentials(l.name, func(context.Context) (string, error) { return l.password, nil }),
	})
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return c, nil
}

// exitCode is what a command ends with whose exit code is its answer.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ownExit returns the exit code that a command has chosen as its answer.
func ownExit(err error) (int, bool) {
	var e exitCode
	ok := errors.As(err, &e)
	return int(e), ok
}
