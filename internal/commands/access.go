package commands

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
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
	tokenFile    string // of those who bind it, in place of the two before
	officer      string
	officerFile  string
}

func (o *accessOptions) bind(f *pflag.FlagSet) {
	o.bindOne(f)
	f.StringVar(&o.officer, "officer-username", "", "security officer, where duties are split; default: --username")
	f.StringVar(&o.officerFile, "officer-password-file", "", "file with the password of --officer-username")
}

// bindOne makes the flags of a command that one principal is enough for.
func (o *accessOptions) bindOne(f *pflag.FlagSet) {
	o.bindServer(f)
	f.StringVar(&o.username, "username", bootstrap.AdminName, "password principal to log in as")
	f.StringVar(&o.passwordFile, "password-file", "", "file with the password of --username")
}

// bindServer makes the flags of a command that logs in as nobody.
func (o *accessOptions) bindServer(f *pflag.FlagSet) {
	f.StringVar(&o.server, "server", "", "URL of the key server's API, for instance https://keys.example:8443")
	f.StringVar(&o.caFile, "ca-file", "", "PEM certificates that the API's own is checked against; default: the system's")
}

// access is what the flags come to. Parts that were not given are empty.
type access struct {
	url            string
	ca             string // PEM
	admin, officer *login
}

// login is a password principal, or a service account with its token in a file. Only a
// name is ever printed.
type login struct{ name, password, tokenFile string }

// Format prints the name only.
func (l login) Format(f fmt.State, _ rune) {
	if l.tokenFile != "" {
		_, _ = f.Write([]byte("token in " + l.tokenFile))
		return
	}
	_, _ = f.Write([]byte("password of " + l.name))
}

func (l login) credentials() client.Credentials {
	if l.tokenFile != "" {
		return client.KubernetesCredentials(l.tokenFile)
	}
	return client.PasswordCredentials(l.name, func(context.Context) (string, error) { return l.password, nil })
}

// read reads the files that the flags name.
func (o accessOptions) read(cmd *cobra.Command) (access, error) {
	a := access{url: o.server}
	if err := program.CheckServer(o.server); err != nil {
		return a, err
	}
	if (o.officer == "") != (o.officerFile == "") {
		return a, program.Usagef("--officer-username and --officer-password-file go together; give both or neither")
	}
	if o.passwordFile == "" && o.tokenFile == "" && (cmd.Flags().Changed("username") || o.officer != "") {
		return a, program.Usagef("--password-file is missing; see %s --help", cmd.CommandPath())
	}
	var err error
	if o.caFile != "" {
		if a.ca, err = readCredential("--ca-file", o.caFile); err != nil {
			return a, err
		}
		if _, err := certtext.Certificates([]byte(a.ca)); err != nil {
			return a, fmt.Errorf("--ca-file: %s %w", o.caFile, err)
		}
	}
	if o.tokenFile != "" {
		a.admin = &login{tokenFile: o.tokenFile}
		return a, without(cmd, "is for a password, and --token-file logs in by a token; give one of them", "username", "password-file")
	}
	if a.admin, err = readLogin("--password-file", o.username, o.passwordFile); err != nil {
		return a, err
	}
	a.officer, err = readLogin("--officer-password-file", o.officer, o.officerFile)
	return a, err
}

// explained adds to a failure which flag helps, where one does. The words are
// looked at, because a plan hears of the failure through a condition.
func (a access) explained(err error) error {
	switch {
	case err == nil || a.url == "":
		return err
	case a.ca == "" && strings.Contains(err.Error(), "certificate signed by unknown authority"):
		return fmt.Errorf("%w; --ca-file names the certificates that it is to be checked against", err)
	case a.officer == nil && client.IsCode(err, "ACCESS_DENIED"):
		return fmt.Errorf("%w; where duties are split, give --officer-username and --officer-password-file, too", err)
	default:
		return err
	}
}

// checkNamespace refuses a namespace that no object can stand in.
func checkNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return program.Usagef("--namespace is %q; it must be a name of lower-case letters, digits and dashes", name)
	}
	return nil
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

// client makes a client that is logged in as one of the two. Where the key server opens no
// session that is bound to nothing (serve --require-proof), it is bound to a key of this
// process. Elsewhere it is not: a key server that knows itself by another URL, behind a
// port that is forwarded, would take no proof.
func (a access) client(ctx context.Context, l *login, userAgent string) (*client.Client, error) {
	c, err := a.connect(l, userAgent, nil)
	if err != nil {
		return nil, err
	}
	if _, err = c.GetCurrentSession(ctx); !client.IsCode(err, "PROOF_REQUIRED") {
		return c, a.explained(err)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	return a.connect(l, userAgent, key)
}

// roots are those of --ca-file, nil for the system's.
func (a access) roots() (*x509.CertPool, error) {
	if a.ca == "" {
		return nil, nil
	}
	return certtext.Pool([]byte(a.ca))
}

func (a access) connect(l *login, userAgent string, proof crypto.Signer) (*client.Client, error) {
	roots, err := a.roots()
	if err != nil {
		return nil, fmt.Errorf("--ca-file %w", err)
	}
	c, err := client.New(client.Options{
		BaseURL: a.url, RootCAs: roots, UserAgent: userAgent, ProofKey: proof,
		Credentials: l.credentials(),
	})
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	return c, nil
}
