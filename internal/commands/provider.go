package commands

import (
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// bindProviders adds the flags of serve for the identity providers that verify
// logins.
func bindProviders(f *pflag.FlagSet, p *server.Providers) {
	f.StringVar(&p.OIDCIssuer, "oidc-issuer", "", "issuer of the tokens for logins (method kubernetes)")
	f.StringSliceVar(&p.OIDCAudiences, "oidc-audience", nil, "accepted audience of a token; may be given several times, or with commas; a token must name one of them")
	f.StringVar(&p.OIDCKeysFile, "oidc-jwks-file", "", "file with the issuer's keys as a JWK set, read again when it changes; default: fetched from the issuer over HTTPS")
	f.StringVar(&p.OIDCCAFile, "oidc-ca-file", "", "PEM file of CAs that verify the issuer's certificate; default: the system's")
	f.BoolVar(&p.TokenReview, "token-review", false, "let the cluster verify tokens (TokenReview); it also checks that the Pod and the service account still exist")
	f.StringVar(&p.Kubeconfig, "kubeconfig", "", "kubeconfig file for --token-review; default: the Pod's service account")
	f.StringVar(&p.LDAP.URL, "ldap-url", "", "directory that checks passwords (method ldap): ldaps://HOST[:PORT], or ldap://HOST[:PORT] with StartTLS")
	f.StringVar(&p.LDAP.CAFile, "ldap-ca-file", "", "PEM file of CAs that verify the directory's certificate; default: the system's")
	f.StringVar(&p.LDAP.UserDN, "ldap-user-dn", "", "DN of a user, with %s for the name: uid=%s,ou=people,dc=example,dc=org; default: found by a search")
	f.StringVar(&p.LDAP.BindDN, "ldap-bind-dn", "", "DN of the account that searches the directory")
	f.StringVar(&p.LDAP.BindPasswordFile, "ldap-bind-password-file", "", "file with the password of --ldap-bind-dn, read at each login")
	f.StringVar(&p.LDAP.BaseDN, "ldap-base-dn", "", "DN below which users are searched")
	f.StringVar(&p.LDAP.Filter, "ldap-filter", "", "filter that finds a user, with %s for the name: (uid=%s)")
}
