package access

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/certtext"
)

// adminName is the password principal of a new key server.
const adminName = "admin"

// Options are the flags that say how to reach one key server. They are
// those of a KeyServer's spec. A password comes from a file, and not from the
// command line, which other users of the machine can read.
type Options struct {
	Server       string
	CAFile       string
	ExternalURL  string // has no flag here
	TokenFile    string // of commands that bind it, instead of a password
	username     string
	passwordFile string
	officer      string
	officerFile  string
}

// Bind adds the flags of a command that may need two principals.
func (o *Options) Bind(f *pflag.FlagSet) {
	o.BindOne(f)
	f.StringVar(&o.officer, "officer-username", "", "security officer, where duties are split; default: --username")
	f.StringVar(&o.officerFile, "officer-password-file", "", "file with the password of --officer-username")
}

// BindOne adds the flags of a command that needs one principal.
func (o *Options) BindOne(f *pflag.FlagSet) {
	f.StringVar(&o.Server, "server", "", "URL of the key server's API, for instance https://keys.example:8443")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM certificates that the API's own is checked against; default: the system's")
	o.BindPassword(f)
}

// BindPassword adds the flags of a login to a command that finds its key server in another way.
func (o *Options) BindPassword(f *pflag.FlagSet) {
	f.StringVar(&o.username, "username", adminName, "password principal to log in as")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the password of --username")
}

// Access is the values of the flags. Parts that were not given are empty.
type Access struct {
	URL            string
	CA             string // PEM
	externalURL    string
	Admin, Officer *Login
}

// Login is a password principal, or a service account with its token in a file. Only a
// name is ever printed.
type Login struct{ Name, Password, tokenFile string }

// Format prints the name only.
func (l Login) Format(f fmt.State, _ rune) {
	if l.tokenFile != "" {
		_, _ = f.Write([]byte("token in " + l.tokenFile))
		return
	}
	_, _ = f.Write([]byte("password of " + l.Name))
}

func (l Login) credentials() client.Credentials {
	if l.tokenFile != "" {
		return client.KubernetesCredentials(l.tokenFile)
	}
	return client.PasswordCredentials(l.Name, func(context.Context) (string, error) { return l.Password, nil })
}

// Read reads the files that the flags name.
func (o *Options) Read(cmd *cobra.Command) (Access, error) {
	a := Access{URL: o.Server, externalURL: o.ExternalURL}
	if err := program.CheckServer(o.Server); err != nil {
		return a, err
	}
	if (o.officer == "") != (o.officerFile == "") {
		return a, program.Usagef("--officer-username and --officer-password-file go together; give both or neither")
	}
	if o.passwordFile == "" && o.TokenFile == "" && (cmd.Flags().Changed("username") || o.officer != "") {
		return a, program.Usagef("--password-file is missing; see %s --help", cmd.CommandPath())
	}
	var err error
	if o.CAFile != "" {
		if a.CA, err = program.ReadFile("--ca-file", o.CAFile); err != nil {
			return a, err
		}
		if _, err := certtext.Certificates([]byte(a.CA)); err != nil {
			return a, fmt.Errorf("--ca-file: %s %w", o.CAFile, err)
		}
	}
	if o.TokenFile != "" {
		a.Admin = &Login{tokenFile: o.TokenFile}
		return a, program.Without(cmd, "is for a password, and --token-file logs in by a token; give one of them", "username", "password-file")
	}
	if a.Admin, err = readLogin("--password-file", o.username, o.passwordFile); err != nil {
		return a, err
	}
	a.Officer, err = readLogin("--officer-password-file", o.officer, o.officerFile)
	return a, err
}

// Explained adds to a failure which flag helps, where one does. The words are
// looked at, because a plan hears of the failure through a condition.
func (a Access) Explained(err error) error {
	switch {
	case err == nil || a.URL == "":
		return err
	case a.CA == "" && strings.Contains(err.Error(), "certificate signed by unknown authority"):
		return fmt.Errorf("%w; --ca-file names the certificates that it is to be checked against", err)
	case a.Officer == nil && client.IsCode(err, "ACCESS_DENIED"):
		return fmt.Errorf("%w; where duties are split, give --officer-username and --officer-password-file, too", err)
	default:
		return err
	}
}

// Given reports whether a flag says something about a key server.
func (a Access) Given() bool { return a.URL != "" || a.CA != "" || a.Admin != nil }

func readLogin(flag, name, file string) (*Login, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // not given, and that is no mistake
	}
	text, err := program.ReadFile(flag, file)
	if err != nil {
		return nil, err
	}
	password := strings.TrimRight(text, "\r\n")
	if password == "" {
		return nil, fmt.Errorf("%s: %s is empty", flag, file)
	}
	return &Login{Name: name, Password: password}, nil
}

// Client returns a client that is logged in as one of the two. The session is bound to a key
// of this process only if the key server requires that (serve --require-proof). A key server
// that knows itself by another URL, behind a port that is forwarded, would take no proof.
func (a Access) Client(ctx context.Context, l *Login, userAgent string) (*client.Client, error) {
	c, err := a.connect(l, userAgent, nil)
	if err != nil {
		return nil, err
	}
	if _, err = c.GetCurrentSession(ctx); !client.IsCode(err, "PROOF_REQUIRED") {
		return c, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return a.connect(l, userAgent, key)
}

// roots are those of --ca-file, nil for the system's.
func (a Access) roots() (*x509.CertPool, error) {
	if a.CA == "" {
		return nil, nil
	}
	return certtext.Pool([]byte(a.CA))
}

func (a Access) connect(l *Login, userAgent string, proof crypto.Signer) (*client.Client, error) {
	roots, err := a.roots()
	if err != nil {
		return nil, fmt.Errorf("--ca-file %w", err)
	}
	c, err := client.New(client.Options{
		BaseURL: a.URL, ProofURL: a.externalURL, RootCAs: roots, UserAgent: userAgent, ProofKey: proof,
		Credentials: l.credentials(),
	})
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return c, nil
}
