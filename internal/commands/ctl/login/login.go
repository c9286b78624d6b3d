package login

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

type loginOptions struct {
	*Flags
	method       string
	username     string
	passwordFile string
	tokenFile    string
	certificate  string
	key          string
	keyStore     string
}

func newLogin(flags *Flags, complete func(*cobra.Command) error) *cobra.Command {
	l := &loginOptions{Flags: flags}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in, and store the session for other commands",
		Long: "Log in, and store the session for other commands. Use a password, the password of an\n" +
			"LDAP directory (--method ldap), a service account token (--token-file) or a client\n" +
			"certificate (--certificate, --key). Without --password-file, the command asks for the\n" +
			"password. The session is bound to a new key, so its id is useless without the key.\n" +
			"docs/ctl.md says where both are stored, and what this protects against.",
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(cmd); err != nil {
				return err
			}
			return l.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.method, "method", "", "password, ldap, kubernetes or certificate; default: the method that the other flags imply, else password")
	f.StringVar(&l.username, "username", "admin", "principal to log in as, for password and ldap")
	f.StringVar(&l.passwordFile, "password-file", "", "file with the password of --username, - is standard input; default: the command asks for it")
	f.StringVar(&l.tokenFile, "token-file", "", "file with a service account token, for --method kubernetes")
	f.StringVar(&l.certificate, "certificate", "", "PEM file with the client certificate and its chain, for --method certificate")
	f.StringVar(&l.key, "key", "", "PEM file with the private key of --certificate")
	f.StringVar(&l.keyStore, "key-store", inFile, "where to store the key of the session: file, or keyring for the keyring of the desktop")
	cmdline.Choices(cmd, "method", schema.MethodPassword, schema.MethodLDAP, schema.MethodKubernetes, schema.MethodCertificate)
	cmdline.Choices(cmd, "key-store", inFile, inKeyring)
	return cmd
}

// check sets the default method, and rejects flags of other methods.
func (l *loginOptions) check() error {
	if l.method == "" {
		switch {
		case l.tokenFile != "":
			l.method = schema.MethodKubernetes
		case l.certificate != "":
			l.method = schema.MethodCertificate
		default:
			l.method = schema.MethodPassword
		}
	}
	methods := []string{schema.MethodPassword, schema.MethodLDAP, schema.MethodKubernetes, schema.MethodCertificate}
	if !slices.Contains(methods, l.method) {
		return cmdline.Usagef("--method is %q; it must be one of %s", l.method, strings.Join(methods, ", "))
	}
	if l.keyStore != inFile && l.keyStore != inKeyring {
		return cmdline.Usagef("--key-store is %q; it must be file or keyring", l.keyStore)
	}
	named := l.method == schema.MethodPassword || l.method == schema.MethodLDAP
	for _, one := range []struct {
		flag, value string
		belongs     bool
		needed      bool
	}{
		{"--password-file", l.passwordFile, named, false},
		{"--token-file", l.tokenFile, l.method == schema.MethodKubernetes, true},
		{"--certificate", l.certificate, l.method == schema.MethodCertificate, true},
		{"--key", l.key, l.method == schema.MethodCertificate, true},
	} {
		switch {
		case one.value != "" && !one.belongs:
			return cmdline.Usagef("%s: the method %s does not use it; leave one of them out", one.flag, l.method)
		case one.value == "" && one.belongs && one.needed:
			return cmdline.Usagef("%s is missing; give it with the method %s", one.flag, l.method)
		}
	}
	return nil
}

func (l *loginOptions) run(cmd *cobra.Command) error {
	if err := l.check(); err != nil {
		return err
	}
	h, err := l.Find()
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	credentials, err := l.credentials(cmd, h.name)
	if err != nil {
		return err
	}
	c, err := h.place.client(credentials, key)
	if err != nil {
		return err
	}
	opened, err := c.Open(cmd.Context())
	if err != nil {
		return h.Failed(err)
	}
	if opened.BoundKey == nil { // the id alone would give access
		_ = c.Logout(context.WithoutCancel(cmd.Context()))
		return errors.New("the key server did not bind the session to its new key, so the session was not stored; check that --server is the key server itself")
	}
	kept := session{
		Server: h.place.Server, SessionID: opened.SessionID.Reveal(), ID: opened.ID.String(), Principal: opened.Principal.Name, Method: l.method,
		ExpiresAt: opened.ExpiresAt, KeyIn: l.keyStore,
	}
	if l.method == schema.MethodCertificate {
		kept.Certificate, kept.Key = absolute(l.certificate), absolute(l.key)
	}
	if err := l.keep(cmd.Context(), h, kept, key); err != nil {
		_ = c.Logout(context.WithoutCancel(cmd.Context())) // the session is useless without its files
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "logged in to %s as %s until %s (context %s)\n", h.place.Server, keyserver.Sanitize(kept.Principal), kept.ExpiresAt.UTC().Format(time.RFC3339), h.name)
	return nil
}

// keep stores the new session and ends the previous session of the context.
func (l *loginOptions) keep(ctx context.Context, h *Context, kept session, key crypto.Signer) error {
	var before *client.Client
	err := h.withLock(func() (err error) {
		// Another process may have logged in in the meantime.
		if h.session, err = h.store.session(h.name); err != nil {
			return err
		}
		if h.session != nil && sameServer(h.session.Server, kept.Server) {
			before, _ = h.Resume() // fails if the key of the session is missing
		}
		if err := h.keep(h.name, kept, key); err != nil {
			return err
		}
		h.place.CAFile = absolute(h.place.CAFile)
		return h.change(func(all *settings) { all.Contexts[h.name], all.Current = h.place, h.name })
	})
	if err != nil {
		return err
	}
	if before != nil {
		_ = before.Logout(ctx) // an error is harmless: the session also expires
	}
	return nil
}

func absolute(name string) string {
	if name == "" {
		return ""
	}
	if whole, err := filepath.Abs(name); err == nil {
		return whole
	}
	return name
}

func (l *loginOptions) credentials(cmd *cobra.Command, name string) (client.Credentials, error) {
	switch l.method {
	case schema.MethodKubernetes:
		return client.KubernetesCredentials(l.tokenFile), nil
	case schema.MethodCertificate:
		return client.CertificateCredentials(certificate(l.certificate, l.key)), nil
	}
	password, err := cmdline.Secret(cmd, "--password-file", l.passwordFile, "Password of "+l.username+" for "+name+": ")
	if err != nil {
		return nil, err
	}
	answer := func(context.Context) (string, error) { return password, nil }
	if l.method == schema.MethodLDAP {
		return client.LDAPCredentials(l.username, answer), nil
	}
	return client.PasswordCredentials(l.username, answer), nil
}

func newLogout(flags *Flags, complete func(*cobra.Command) error) *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "End the stored session, and delete it and its key",
		Args:  cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(cmd); err != nil {
				return err
			}
			h, err := flags.Find()
			if err != nil {
				return err
			}
			if h.session == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "context %s had no session\n", h.name)
				return nil
			}
			c, failed := h.Resume()
			if failed == nil {
				failed = c.Logout(cmd.Context())
			}
			err = h.withLock(func() error {
				is, err := h.store.session(h.name)
				if err != nil || is == nil || is.ID != h.session.ID { // another process has logged in in the meantime
					return err
				}
				return h.forget(h.name)
			})
			if err != nil {
				return err
			}
			if failed != nil {
				return h.Failed(fmt.Errorf("the session was deleted on this machine, but may stay open on the key server until %s: %w", h.session.ExpiresAt.UTC().Format(time.RFC3339), failed))
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "logged out of %s (context %s)\n", h.session.Server, h.name)
			return nil
		},
	}
}
