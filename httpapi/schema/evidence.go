package schema

import "slices"

// The answer of a verified write says itself what it lacks to be believed: it
// has a method Unproven, whose answer is empty where nothing is missing, and
// otherwise a sentence for people. A service that answers 200 has read back
// what it wrote; one that cannot show it has not.

// unshown is the sentence of an answer that should show an object.
func unshown(shown bool, object string) string {
	if shown {
		return ""
	}
	return "the service reports success without " + object + " as read back"
}

// ungone is the sentence of an answer that should say that an object is gone.
func ungone(gone bool, object string) string {
	if gone {
		return ""
	}
	return "the service reports success, but not that " + object + " is gone"
}

// Unproven: the list reads back as was asked, and holds what was granted.
func (r ACLResponse) Unproven() string {
	return unshown(r.Verified && (r.RequestedRights == nil || r.Entry != nil), "the list")
}

// Unproven: the template reads back.
func (r ACLTemplateSaved) Unproven() string {
	return unshown(r.Saved && r.Template != nil, "the template")
}

// Unproven: the template is gone.
func (r ACLTemplateGone) Unproven() string { return ungone(r.Gone, "the template") }

// Unproven: the member reads back.
func (r TemplateMemberSaved) Unproven() string {
	return unshown(r.Saved && r.Member != nil, "the member")
}

// Unproven: the member is gone.
func (r TemplateMemberGone) Unproven() string { return ungone(r.Gone, "the member") }

// Unproven: the directory reads back.
func (r TemplatedDirectorySaved) Unproven() string {
	return unshown(r.Saved && r.Directory != nil, "the directory")
}

// Unproven: the directory is gone.
func (r TemplatedDirectoryGone) Unproven() string { return ungone(r.Gone, "the directory") }

// Unproven: the role reads back.
func (r RoleSaved) Unproven() string { return unshown(r.Saved && r.Role != nil, "the role") }

// Unproven: the role is gone.
func (r RoleGone) Unproven() string { return ungone(r.Gone, "the role") }

// Unproven: the principal reads back.
func (r PrincipalSaved) Unproven() string {
	return unshown(r.Saved && r.Principal != nil, "the principal")
}

// Unproven: the flags read back.
func (r PrincipalFlagsSaved) Unproven() string { return unshown(r.Saved, "the flags") }

// Unproven: the roles read back.
func (r PrincipalRolesSaved) Unproven() string { return unshown(r.Saved, "the roles") }

// Unproven: the member reads back.
func (r GroupMemberSaved) Unproven() string { return unshown(r.Saved, "the member") }

// Unproven: the member is gone.
func (r GroupMemberGone) Unproven() string { return ungone(r.Gone, "the member") }

// Unproven: the certificate reads back under an id.
func (r TrustedCAAdded) Unproven() string {
	return unshown(r.Saved && r.TrustedCA != nil && r.TrustedCA.CertificateID != nil, "the certificate")
}

// Unproven: the CA is gone.
func (r TrustedCARemoved) Unproven() string { return ungone(r.Gone, "the CA") }

// Unproven: the list that was read back has the peer.
func (r TrustedServerSaved) Unproven() string {
	return unshown(r.Saved && slices.ContainsFunc(r.TrustedServers, func(s TrustedServer) bool {
		return s.SystemID != nil && *s.SystemID == r.SystemID
	}), "the peer")
}

// Unproven: the peer reads back.
func (r TrustedServerUpdated) Unproven() string {
	return unshown(r.Saved && r.TrustedServer != nil && r.TrustedServer.SystemID != nil, "the peer")
}

// Unproven: the peer is gone.
func (r TrustedServerGone) Unproven() string { return ungone(r.Removed != nil, "the peer") }

// Unproven: the row reads back.
func (r PrincipalTrustSaved) Unproven() string {
	return unshown(r.Saved && r.PrincipalTrust != nil, "the principal trust")
}

// Unproven: the row is gone.
func (r PrincipalTrustGone) Unproven() string { return ungone(r.Gone, "the principal trust") }

// Unproven: the certificate reads back.
func (r CertificateRenewed) Unproven() string { return unshown(len(r.Chain) > 0, "the certificate") }

// Unproven: the certificate reads back with its request.
func (r CertificateIssued) Unproven() string {
	return unshown(r.Saved && len(r.Chain) > 0 && len(r.Certificate) > 0, "the certificate")
}

// Unproven: the principals read back with their certificates.
func (r CertificatesEnrolled) Unproven() string {
	return unshown(r.Saved && len(r.Principals) > 0, "the principals")
}

// Unproven: the principal's certificates are gone.
func (r TransportPrincipalReset) Unproven() string {
	return ungone(r.Reset, "every certificate of the principal")
}

// Unproven: the policy reads back.
func (r RevocationPolicySaved) Unproven() string { return unshown(r.Saved, "the policy") }

// Unproven: the list reads back as evidence of an issuer.
func (r CRLImported) Unproven() string {
	return unshown(r.Saved && len(r.Issuers) > 0, "the revocation list")
}
