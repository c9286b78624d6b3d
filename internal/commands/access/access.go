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

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// adminName is the name of the password principal of a new key server.
const adminName = "admin"

// Options are the flags for access to one key server. They correspond to fields of a KeyServer's spec. Passwords are
// read from files, because other users of the machine can read command lines.
type Options struct {
	Server       string
	CAFile       string
	ExternalURL  string // set by the caller, without a flag
	TokenFile    string // used instead of the password; only some commands have a flag for it
	username     string
	passwordFile string
	officer      string
	officerFile  string
}

// Bind adds the flags of a command that may need two principals.
func (o *Options) Bind(f *pflag.FlagSet) {
	o.BindOne(f)
	f.StringVar(&o.officer, "officer-username", "", "name of the security officer, if duties are split; default: --username")
	f.StringVar(&o.officerFile, "officer-password-file", "", "file with the password of --officer-username")
}

// BindOne adds the flags of a command that needs one principal.
func (o *Options) BindOne(f *pflag.FlagSet) {
	f.StringVar(&o.Server, "server", "", "URL of the key server's API, for instance https://keys.example:8443")
	f.StringVar(&o.CAFile, "ca-file", "", "PEM file with the CA certificates that verify the key server's certificate; default: those of the system")
	o.BindPassword(f)
}

// BindPassword adds only the login flags, for a command that gets the URL from another source.
func (o *Options) BindPassword(f *pflag.FlagSet) {
	f.StringVar(&o.username, "username", adminName, "password principal to log in as")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the password of --username")
}

// Access has the values of the flags and the content of the named files. Missing flags give empty fields.
type Access struct {
	URL            string
	CA             string // PEM
	externalURL    string
	Admin, Officer *Login
}

// Login is a password principal, or a service account with a token file. Printing a Login never shows a password or
// token.
type Login struct{ Name, Password, tokenFile string }

// Format prints the name of the principal or of the token file, for every verb.
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

// Read validates the flags and reads the files that they name.
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
		return a, program.ForbidFlags(cmd, "is for a login with a password, but --token-file is for one with a token; give one of them", "username", "password-file")
	}
	if a.Admin, err = readLogin("--password-file", o.username, o.passwordFile); err != nil {
		return a, err
	}
	a.Officer, err = readLogin("--officer-password-file", o.officer, o.officerFile)
	return a, err
}

// WithHint adds a flag to the error if the flag can prevent the error. It compares texts, because a plan gets TLS
// errors only as the text of a condition.
func (a Access) WithHint(err error) error {
	switch {
	case err == nil || a.URL == "":
		return err
	case a.CA == "" && strings.Contains(err.Error(), "certificate signed by unknown authority"):
		return fmt.Errorf("%w; give the CA certificate of the key server as --ca-file", err)
	case a.Officer == nil && client.IsCode(err, "ACCESS_DENIED"):
		return fmt.Errorf("%w; if duties are split, also give --officer-username and --officer-password-file", err)
	default:
		return err
	}
}

// Given reports whether a flag about a key server was given.
func (a Access) Given() bool { return a.URL != "" || a.CA != "" || a.Admin != nil }

func readLogin(flag, name, file string) (*Login, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // the flag is optional
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

// Client returns a client that logs in as l. It binds the session to a key only if the key server requires this (serve
// --require-proof). Behind a forwarded port, the key server has another URL than the client and would reject proofs.
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

// roots returns the certificates of --ca-file, or nil for the system's certificates.
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
