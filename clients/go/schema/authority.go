package schema

import (
	"slices"
	"time"
)

// Authority is an internal CA of the key server.
type Authority struct {
	CertificateID Base64ID  `json:"certificateId"`
	State         string    `json:"state" enum:"AuthorityState" doc:"prepared: trusted, but issues nothing yet. active: issues certificates. retiring: trusted for the certificates that it issued."`
	Subject       string    `json:"subject" doc:"Subject in slash form."`
	NotBefore     time.Time `json:"notBefore" doc:"Start of the validity."`
	NotAfter      time.Time `json:"notAfter" doc:"End of the validity."`
	Certificate   Base64    `json:"certificate" doc:"Self-signed certificate in DER."`
	PreparedAt    time.Time `json:"preparedAt" doc:"Time since which the CA is trusted."`
	ActivatedAt   time.Time `json:"activatedAt,omitzero" doc:"Time since which the CA issues; absent while it is prepared."`
	RetiringAt    time.Time `json:"retiringAt,omitzero" doc:"Time since which another CA issues."`
}

// AuthorityList is the response of GET /api/authority.
type AuthorityList struct {
	Authorities []Authority `json:"authorities" doc:"CAs in order of creation."`
}

// ActivateAuthorityRequest makes the prepared authority issue certificates.
type ActivateAuthorityRequest struct {
	Early bool `json:"early,omitzero" doc:"Activate the CA even if it was prepared less than an hour ago."`
}

// RetireAuthorityRequest names an authority that does not issue certificates.
type RetireAuthorityRequest struct {
	CertificateID Base64ID `json:"certificateId" names:"-" doc:"Certificate id from GET /api/authority."`
}

// AuthorityChanged is the result of preparing or activating an authority.
type AuthorityChanged struct {
	Saved         bool        `json:"saved" doc:"True if the second read shows the CA in its new state."`
	CertificateID Base64ID    `json:"certificateId" doc:"Certificate id of the CA that was prepared or activated."`
	Authorities   []Authority `json:"authorities" doc:"Objects from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the authority in its new state.
func (r AuthorityChanged) MissingEvidence() string {
	listed := slices.ContainsFunc(r.Authorities, func(a Authority) bool { return a.CertificateID == r.CertificateID })
	return notShown(r.Saved && listed, "the authority")
}

// AuthorityGone is the result of retiring an authority.
type AuthorityGone struct {
	Gone          bool        `json:"gone" doc:"True if the second read no longer shows the CA."`
	CertificateID Base64ID    `json:"certificateId"`
	Authorities   []Authority `json:"authorities" doc:"Objects from the second read."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the authority.
func (r AuthorityGone) MissingEvidence() string { return notDeleted(r.Gone, "the authority") }
