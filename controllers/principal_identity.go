package controllers

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// tokenIdentity has the claims by which the key server recognizes the tokens of an xauth principal.
type tokenIdentity struct {
	issuer, subject string
	audiences       []string // sorted
}

func (i tokenIdentity) String() string { return fmt.Sprintf("%q of issuer %q", i.subject, i.issuer) }

// declaredSubject returns the subject of the service account's tokens.
func declaredSubject(obj *v1beta1.Principal) string {
	account := obj.Spec.ServiceAccount
	namespace := obj.Namespace
	if account.Namespace != nil {
		namespace = *account.Namespace
	}
	return "system:serviceaccount:" + namespace + ":" + account.Name
}

// identityDeclared returns the declared issuer, subject and audiences of the service account's tokens.
func identityDeclared(ctx context.Context, in reconcile.Input, obj *v1beta1.Principal) (*tokenIdentity, error) {
	account := obj.Spec.ServiceAccount
	if n := len(declaredName(obj)); n > maxPrincipalName {
		return nil, connection.NewProblem(v1beta1.ReasonInvalidSpec,
			"the principal name %q has %d characters, but the limit is %d; delete this object and create it again with a shorter spec.principalName", declaredName(obj), n, maxPrincipalName)
	}
	is := &tokenIdentity{subject: declaredSubject(obj), issuer: deref(account.Issuer), audiences: slices.Sorted(slices.Values(account.Audiences))}
	var err error
	if account.Issuer == nil {
		is.issuer, err = in.Issuer.URL(ctx)
	}
	return is, err
}

// differsAsWhole reports whether the principal has another name or identity than declared, which cannot be corrected.
// It also adds a blocker for different audiences, which cannot be corrected either.
func differsAsWhole(want *declaredPrincipal, held schema.Principal, seen *reconcile.External) bool {
	fixed := func(field, declared, observed, why string) {
		seen.Drift = append(seen.Drift, v1beta1.FieldDrift{Field: field, Declared: declared, Observed: observed})
		seen.Blockers = append(seen.Blockers, reconcile.Fixed(why))
	}
	if held.Name != want.name {
		fixed("certificate", want.name, held.Name, fmt.Sprintf(
			"spec.certificate: the subject is %q, but this object manages %s; a principal cannot change its name: declare the new subject in another object", want.name, seen.What))
		return true
	}
	if want.identity == nil {
		return false
	}
	is := tokenIdentity{held.Issuer, held.Subject, slices.Sorted(slices.Values(held.Audiences))}
	if is.issuer != want.identity.issuer || is.subject != want.identity.subject {
		fixed("serviceAccount", want.identity.String(), is.String(), fmt.Sprintf(
			"spec.serviceAccount: %s has the identity %s, but this object declares %s; a principal cannot change its identity: delete that principal on the key server, or delete this object and create it again with another spec.principalName",
			seen.What, is, want.identity))
		return true
	}
	if !slices.Equal(is.audiences, want.identity.audiences) {
		fixed("serviceAccount.audiences", listed(want.identity.audiences), listed(is.audiences), fmt.Sprintf(
			"spec.serviceAccount.audiences: %s accepts tokens for %s, but this object declares %s; the key server cannot change audiences: delete the principal there, or delete this object and create it again with the present audiences",
			seen.What, listed(is.audiences), listed(want.identity.audiences)))
	}
	return false
}
