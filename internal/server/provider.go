package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/auth/ldap"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/oidc"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/tokenreview"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// Providers configures the identity providers of logins. A login method without a provider is refused.
type Providers struct {
	OIDCIssuer    string
	OIDCAudiences []string
	OIDCKeysFile  string // empty: the keys are fetched from the issuer
	OIDCCAFile    string // PEM file of the CAs for connections to the issuer; empty: the system's CAs
	TokenReview   bool   // the cluster verifies tokens, so no keys of the issuer are used
	Kubeconfig    string // for TokenReview; empty: the Pod's service account
	LDAP          ldap.Config
}

func (p Providers) validate() error {
	if err := p.validateTokens(); err != nil {
		return err
	}
	return p.LDAP.Validate()
}

func (p Providers) validateTokens() error {
	tokens := p.OIDCIssuer != "" || p.TokenReview
	switch {
	case !tokens && (len(p.OIDCAudiences) > 0 || p.OIDCKeysFile != "" || p.OIDCCAFile != ""):
		return errors.New("--oidc-audience, --oidc-jwks-file and --oidc-ca-file require --oidc-issuer; give it, too")
	case tokens && len(p.OIDCAudiences) == 0:
		return errors.New("--oidc-audience is missing; give it, or tokens for other services could open sessions here")
	case slices.Contains(p.OIDCAudiences, ""):
		return errors.New("--oidc-audience must not be empty")
	case p.TokenReview && (p.OIDCKeysFile != "" || p.OIDCCAFile != ""):
		return errors.New("--token-review cannot be combined with --oidc-jwks-file or --oidc-ca-file, because the cluster verifies the tokens; omit one")
	case p.Kubeconfig != "" && !p.TokenReview:
		return errors.New("--kubeconfig requires --token-review; give both or neither")
	case p.OIDCKeysFile != "" && p.OIDCCAFile != "":
		return errors.New("--oidc-jwks-file and --oidc-ca-file cannot be combined, because the issuer is not contacted if a file has its keys; omit one")
	case p.verifiedBy() != byDiscovery:
		return nil
	}
	if err := p.discovery().Validate(); err != nil {
		return fmt.Errorf("--oidc-issuer: the URL %w; if the issuer has this name, give its keys with --oidc-jwks-file", err)
	}
	return nil
}

// Ways to verify a token, as they are named in the configuration tree.
const (
	byReview    = "tokenReview"
	byFile      = "file"
	byDiscovery = "discovery"
)

func (p Providers) verifiedBy() string {
	switch {
	case p.TokenReview:
		return byReview
	case p.OIDCIssuer == "":
		return ""
	case p.OIDCKeysFile != "":
		return byFile
	default:
		return byDiscovery
	}
}

func (p Providers) discovery() oidc.Discovery {
	return oidc.Discovery{Issuer: p.OIDCIssuer, CAFile: p.OIDCCAFile}
}

// providers creates the configured identity providers. It does not connect to them, because the process must also start
// if a provider is unavailable.
func (s *Server) providers() (session.Providers, error) {
	p, clock := s.cfg.Providers, s.cfg.Clock
	rules := oidc.Rules{Issuer: p.OIDCIssuer, Audiences: p.OIDCAudiences}
	var out session.Providers
	switch p.verifiedBy() {
	case byReview:
		reviews, err := tokenreview.Connect(p.Kubeconfig, rules, clock)
		if err != nil {
			return out, fmt.Errorf("--token-review: %w", err)
		}
		out.Tokens = reviews
	case byFile:
		out.Tokens = oidc.NewVerifier(rules, oidc.File(p.OIDCKeysFile), clock)
	case byDiscovery:
		out.Tokens = oidc.NewVerifier(rules, p.discovery(), clock)
	}
	if p.LDAP.On() {
		out.Directory = ldap.New(p.LDAP, clock)
	}
	return out, nil
}

func (p Providers) nodes() []keyserver.ConfigNode {
	var list []keyserver.ConfigNode
	if by := p.verifiedBy(); by != "" {
		list = append(list, node("Tokens", "issuer", urltext.Origin(p.OIDCIssuer), "audiences", strings.Join(p.OIDCAudiences, ","), "verifiedBy", by,
			"keysFile", p.OIDCKeysFile, "caFile", p.OIDCCAFile, "kubeconfig", p.Kubeconfig))
	}
	if p.LDAP.On() {
		list = append(list, node("Directory", "url", urltext.Origin(p.LDAP.URL), "entryBy", p.LDAP.Mode(), "caFile", p.LDAP.CAFile,
			"bindDN", p.LDAP.BindDN, "bindPasswordFile", p.LDAP.BindPasswordFile))
	}
	return list
}
