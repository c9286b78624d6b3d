package login

import (
	"crypto"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// Flags are the flags that choose a key server and a session.
type Flags struct {
	place
	context string
}

// Bind adds the flags to a command and to all commands below it.
func (f *Flags) Bind(root *cobra.Command) {
	set := root.PersistentFlags()
	set.StringVar(&f.Server, "server", "", "URL of the key server's API; default: that of the context")
	set.StringVar(&f.context, "context", "", "name of the key server and session to use; default: that of the last login")
	set.StringVar(&f.CAFile, "ca-file", "", "PEM file with the CA certificates that verify the key server's certificate; default: that of the context, else those of the system")
	set.StringVar(&f.ExternalURL, "external-url", "", "the key server's own URL (serve --external-url), if it differs from --server; DPoP proofs are for it")
	_ = root.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		if _, all, err := openStore(); err == nil {
			return all.names(), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	})
}

// Commands returns the commands that open and end sessions, and that choose a context. complete sets the flags of a
// command from environment variables.
func Commands(flags *Flags, complete func(*cobra.Command) error) []*cobra.Command {
	return []*cobra.Command{newLogin(flags, complete), newLogout(flags, complete), newContexts()}
}

// fallback is the name of the context if neither a flag nor the settings give one.
const fallback = "default"

// Context is a key server with its stored session.
type Context struct {
	*store
	settings settings
	name     string
	place    place
	session  *session // nil without a session
}

// Find returns the context that the flags name, or the current one. Flags override its settings.
func (f *Flags) Find() (*Context, error) {
	h, err := f.find()
	if err == nil && h.place.Server == "" {
		err = cmdline.Usagef("--server is missing, and the context %q has none; log in first: keyserverctl login --server URL", h.name)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// find is like Find, but it also returns a context without a key server.
func (f *Flags) find() (*Context, error) {
	s, err := newStore(os.Getenv)
	if err != nil {
		return nil, err
	}
	h := &Context{store: s}
	if h.settings, err = s.settings(); err != nil {
		return nil, err
	}
	h.name = f.context
	if h.name == "" {
		h.name = h.settings.Current
	}
	if h.name == "" {
		h.name = fallback
	}
	if err := checkContext(h.name); err != nil {
		return nil, err
	}
	h.place = h.settings.Contexts[h.name]
	if h.session, err = s.session(h.name); err != nil {
		return nil, err
	}
	if f.Server != "" && !sameServer(f.Server, h.place.Server) {
		h.place = place{Server: strings.TrimRight(f.Server, "/")}
	}
	if f.CAFile != "" {
		h.place.CAFile = f.CAFile
	}
	if f.ExternalURL != "" {
		h.place.ExternalURL = f.ExternalURL
	}
	return h, checkServer(h.place)
}

// FindWithoutSession is like Find, for commands that can work without a session. If there is no home directory for
// settings and sessions, as in a Pod, it returns the key server of --server.
func (f *Flags) FindWithoutSession() (*Context, error) {
	if _, err := newStore(os.Getenv); err == nil {
		return f.Find()
	}
	if f.Server == "" {
		return nil, cmdline.Usagef("--server is missing, and there are no contexts, because %s is not set; give --server", homeVariable)
	}
	h := &Context{name: fallback, place: f.place}
	h.place.Server = strings.TrimRight(h.place.Server, "/")
	return h, checkServer(h.place)
}

// Chosen reports whether a flag names the key server or the context.
func (f *Flags) Chosen() bool { return f.Server != "" || f.context != "" }

// sameServer reports whether two URLs name the same key server. It ignores the case of hosts.
func sameServer(a, b string) bool {
	one, err := url.Parse(strings.TrimRight(a, "/"))
	if err != nil {
		return a == b
	}
	other, err := url.Parse(strings.TrimRight(b, "/"))
	return err == nil && one.Scheme == other.Scheme && strings.EqualFold(one.Host, other.Host) && one.Path == other.Path
}

func checkServer(p place) error {
	for flag, given := range map[string]string{"--server": p.Server, "--external-url": p.ExternalURL} {
		if given == "" {
			continue
		}
		if strings.HasSuffix(strings.TrimRight(given, "/"), "/api") {
			return cmdline.Usagef("%s ends in /api; leave /api out, because each call adds it", flag)
		}
		if _, err := client.New(client.Options{BaseURL: given}); err != nil {
			return cmdline.Usagef("%s: %w", flag, err)
		}
	}
	return nil
}

// client returns a client of a key server. credentials open its session, which is bound to key. Both are nil for
// requests without a session.
func (p *place) client(credentials client.Credentials, key crypto.Signer) (*client.Client, error) {
	o := client.Options{
		BaseURL: p.Server, ProofURL: p.ExternalURL, Credentials: credentials, ProofKey: key,
		UserAgent: "keyserver-operator-ctl/" + version.String(),
	}
	if p.CAFile != "" {
		text, err := readFile(p.CAFile, false)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		if o.RootCAs, err = certtext.Pool(text); err != nil {
			return nil, fmt.Errorf("--ca-file: %s %w", p.CAFile, err)
		}
	}
	return client.New(o)
}

// LoggedIn reports whether there is a stored session for the key server.
func (h *Context) LoggedIn() bool {
	return h.session != nil && sameServer(h.session.Server, h.place.Server)
}

// SessionID returns the public id of the stored session, or "" if there is none.
func (h *Context) SessionID() string {
	if h.session == nil {
		return ""
	}
	return h.session.ID
}

// Server returns the URL of the key server.
func (h *Context) Server() string { return h.place.Server }

// Secret returns the secret id of the stored session, or "" if there is none.
func (h *Context) Secret() string {
	if h.session == nil {
		return ""
	}
	return h.session.SessionID
}

// Client returns a client without a session.
func (h *Context) Client() (*client.Client, error) { return h.place.client(nil, nil) }

// Resume returns a client that uses the stored session.
func (h *Context) Resume() (*client.Client, error) {
	switch {
	case h.session == nil:
		return nil, &cmdline.Failure{Code: cmdline.ExitRefused, Err: fmt.Errorf("there is no session at %s (context %q): log in with keyserverctl login", h.place.Server, h.name)}
	case !sameServer(h.session.Server, h.place.Server):
		return nil, &cmdline.Failure{Code: cmdline.ExitRefused, Err: fmt.Errorf("the session of context %q is for %s and is not sent to other servers; for %s, log in with another --context", h.name, h.session.Server, h.place.Server)}
	}
	key, err := h.key(h.name, h.session)
	if err != nil {
		return nil, err
	}
	var shown func() (*tls.Certificate, error)
	if h.session.Certificate != "" {
		shown = certificate(h.session.Certificate, h.session.Key)
	}
	return h.place.client(client.HeldSession(schema.Secret(h.session.SessionID), shown), key)
}

func certificate(cert, key string) func() (*tls.Certificate, error) {
	return func() (*tls.Certificate, error) {
		shown, err := readFile(cert, false)
		if err != nil {
			return nil, fmt.Errorf("--certificate: %w", err)
		}
		held, err := readFile(key, false)
		if err != nil {
			return nil, fmt.Errorf("--key: %w", err)
		}
		defer clear(held)
		pair, err := certtext.KeyPair(shown, held)
		if err != nil {
			return nil, fmt.Errorf("--certificate: %w", err)
		}
		return &pair, nil
	}
}
