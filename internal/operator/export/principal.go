package export

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

func init() { collectors["Principal"] = collector{(*exporter).principals, "principal"} }

// principalTypes are the types whose principals are listed: all types.
var principalTypes = []string{"group", "xauth", "ldap", "certificate", "password"}

// principals exports all principals except built-in ones, those of peers, and the two that the export logs in as.
func (e *exporter) principals(ctx context.Context) ([]candidate, error) {
	r := registry{exporter: e, roles: map[schema.HexID]string{}, at: map[schema.HexID]int{}, skip: map[schema.HexID]bool{}}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	for _, kind := range principalTypes {
		if err := r.list(ctx, kind); err != nil {
			return nil, err
		}
	}
	return r.found, r.refer(ctx)
}

// registry collects principals before their references to each other are resolved.
type registry struct {
	*exporter
	roles map[schema.HexID]string // role name by id
	skip  map[schema.HexID]bool
	found []candidate
	held  []schema.Principal   // the principal of each candidate
	at    map[schema.HexID]int // index of a principal in found
}

func (r *registry) begin(ctx context.Context) error {
	list, err := r.Admin.ListRoles(ctx)
	if err != nil {
		return err
	}
	for _, role := range list.Roles {
		r.roles[role.ID] = role.Name
	}
	for _, api := range []API{r.Admin, r.Officer} {
		session, err := api.GetCurrentSession(ctx)
		if err != nil {
			return err
		}
		r.skip[schema.HexID(session.Principal.PrincipalID)] = true
	}
	peers, err := r.Officer.ListTrustedServers(ctx, schema.TrustedServersQuery{})
	for _, peer := range peers.TrustedServers {
		if peer.TransportPrincipalID != nil {
			r.skip[schema.HexID(*peer.TransportPrincipalID)] = true
		}
	}
	return err
}

// pageOfPrincipals is the maximum page size of the key server.
const pageOfPrincipals = 500

func (r *registry) list(ctx context.Context, kind string) error {
	limit := pageOfPrincipals
	for offset := 0; ; offset += limit {
		page, err := r.Admin.ListPrincipals(ctx, schema.PrincipalQuery{Type: kind, Limit: &limit, Offset: &offset})
		if err != nil {
			return err
		}
		for _, p := range page.Principals {
			if _, known := r.at[p.ID]; known || p.SystemDefined || r.skip[p.ID] {
				continue
			}
			c, err := r.candidate(ctx, kind, p)
			if err != nil {
				return err
			}
			r.at[p.ID] = len(r.found)
			r.found, r.held = append(r.found, c), append(r.held, p)
		}
		if len(page.Principals) < limit {
			return nil
		}
	}
}

// candidate declares a principal without its groups and delegates.
func (r *registry) candidate(ctx context.Context, kind string, p schema.Principal) (candidate, error) {
	c := candidate{what: fmt.Sprintf("%s principal %q (id %s)", kind, p.Name, p.ID), title: p.Name, id: p.ID.String(), marked: p.ID}
	obj := &v1beta1.Principal{Spec: v1beta1.PrincipalSpec{Disabled: p.Disabled}}
	var err error
	switch kind {
	case "group":
		obj.Spec.Group, obj.Spec.PrincipalName = &v1beta1.PrincipalGroup{}, &p.Name
	case "ldap":
		obj.Spec.LDAP = &v1beta1.PrincipalLDAP{Name: p.Name}
	case "xauth":
		c.cannot = serviceAccount(p, obj)
	case "certificate":
		c.cannot, err = r.certificate(ctx, p, obj)
	default:
		c.cannot = "manifests cannot declare principals with a password"
	}
	for _, id := range p.RoleIDs {
		name := r.roles[id]
		if name == "" {
			c.cannot = fmt.Sprintf("it has the role %s, which the key server does not list", id)
		}
		obj.Spec.Roles = append(obj.Spec.Roles, v1beta1.PrincipalRole{Name: &name})
	}
	slices.SortFunc(obj.Spec.Roles, func(a, b v1beta1.PrincipalRole) int { return strings.Compare(*a.Name, *b.Name) })
	c.object = obj
	return c, err
}

// serviceAccount declares an xauth principal by the service account in its subject.
func serviceAccount(p schema.Principal, obj *v1beta1.Principal) (cannot string) {
	parts := strings.Split(strings.TrimPrefix(p.Subject, "system:serviceaccount:"), ":")
	if !strings.HasPrefix(p.Subject, "system:serviceaccount:") || len(parts) != 2 {
		return fmt.Sprintf("the subject of its tokens, %q, is not a Kubernetes service account", p.Subject)
	}
	obj.Spec.ServiceAccount = &v1beta1.PrincipalServiceAccount{Namespace: &parts[0], Name: parts[1], Issuer: &p.Issuer, Audiences: p.Audiences}
	if p.Name != p.Subject {
		obj.Spec.PrincipalName = &p.Name
	}
	return ""
}

// certificate declares a certificate principal by its certificate with the latest expiry.
func (r *registry) certificate(ctx context.Context, p schema.Principal, obj *v1beta1.Principal) (cannot string, err error) {
	found, err := r.Admin.FindCertificatesByTransportPrincipal(ctx, schema.CertificatesRequest{Subject: p.Name, IncludeBodies: true})
	if err != nil {
		return "", err
	}
	var best *x509.Certificate
	for _, f := range found.Certificates {
		if f.Certificate == nil || f.StatusLabel == nil || *f.StatusLabel == "Expired" {
			continue
		}
		cert, err := x509.ParseCertificate(*f.Certificate)
		if err == nil && (best == nil || cert.NotAfter.After(best.NotAfter)) {
			best = cert
		}
	}
	if best == nil {
		return "it has no certificate that it can log in with", nil
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: best.Raw}))
	obj.Spec.Certificate = &v1beta1.PrincipalCertificate{Certificate: &v1beta1.ClientCertificateSource{Inline: &text}}
	return "", nil
}

// refer declares groups and delegates by the names of their objects. If a principal cannot be exported, the principals
// that refer to it are not exported either. Their manifests would have incomplete lists, and the manager would remove
// the missing entries from the key server.
func (r *registry) refer(ctx context.Context) error {
	names := unique("Principal", r.found)
	for i := range r.found {
		if r.found[i].cannot != "" {
			continue
		}
		r.found[i].object.SetName(names[i])
		r.found[i].object.SetNamespace(r.Namespace)
		_, _, refusal, err := r.checked(ctx, "Principal", r.found[i])
		if err != nil {
			return err
		}
		if refusal != nil {
			r.found[i].cannot = refusal.Error()
		}
	}
	for changed := true; changed; {
		changed = false
		for i, p := range r.held {
			if r.found[i].cannot != "" {
				continue
			}
			for _, id := range slices.Concat(p.GroupIDs, p.Delegates) {
				if at, known := r.at[id]; !known || r.found[at].cannot != "" {
					r.found[i].cannot = fmt.Sprintf("the principal %s, one of its groups or delegates, is not exported", id)
					changed = true
				}
			}
		}
	}
	for i, p := range r.held {
		obj, is := r.found[i].object.(*v1beta1.Principal)
		if !is || r.found[i].cannot != "" {
			continue
		}
		for _, id := range p.GroupIDs {
			obj.Spec.Groups = append(obj.Spec.Groups, v1beta1.PrincipalMembership{PrincipalRef: v1beta1.PrincipalObjectReference{Name: names[r.at[id]]}})
		}
		if p.Delegation {
			obj.Spec.Delegation = &v1beta1.PrincipalDelegation{Anybody: len(p.Delegates) == 0}
		}
		for _, id := range p.Delegates {
			if p.Delegation {
				obj.Spec.Delegation.Delegates = append(obj.Spec.Delegation.Delegates, v1beta1.PrincipalDelegate{PrincipalRef: v1beta1.PrincipalObjectReference{Name: names[r.at[id]]}})
			}
		}
	}
	return nil
}
