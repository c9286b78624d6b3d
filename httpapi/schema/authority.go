package schema

import (
	"slices"
	"time"
)

// Authority is a CA of the key server itself.
type Authority struct {
	CertificateID Base64ID  `json:"certificateId"`
	State         string    `json:"state" enum:"prepared,active,retiring" doc:"prepared is trusted and issues nothing yet; active issues; retiring is trusted for what it issued."`
	Subject       string    `json:"subject" doc:"Its name, in slash form."`
	NotBefore     time.Time `json:"notBefore" doc:"When its life begins."`
	NotAfter      time.Time `json:"notAfter" doc:"When it ends."`
	Certificate   Base64    `json:"certificate" doc:"DER, self-signed."`
	PreparedAt    time.Time `json:"preparedAt" doc:"Since when it is trusted."`
	ActivatedAt   time.Time `json:"activatedAt,omitzero" doc:"Since when it issues; absent while it is prepared."`
	RetiringAt    time.Time `json:"retiringAt,omitzero" doc:"Since when another one issues."`
}

// AuthorityList is the response of GET /api/authority.
type AuthorityList struct {
	Authorities []Authority `json:"authorities" doc:"In the order in which they were made."`
}

// ActivateAuthorityRequest makes the prepared authority issue certificates.
type ActivateAuthorityRequest struct {
	Early bool `json:"early,omitzero" doc:"Also where it was prepared less than an hour ago."`
}

// RetireAuthorityRequest names an authority that does not issue certificates.
type RetireAuthorityRequest struct {
	CertificateID Base64ID `json:"certificateId" names:"-" doc:"As GET /api/authority lists it."`
}

// AuthorityChanged is the verdict on preparing or activating an authority.
type AuthorityChanged struct {
	Saved         bool        `json:"saved" doc:"A fresh list has the authority in its new state."`
	CertificateID Base64ID    `json:"certificateId" doc:"Of the authority that was prepared or activated."`
	Authorities   []Authority `json:"authorities" doc:"As listed afresh."`
	Verdict
}

// Unproven returns "" if the authority reads back in its new state.
func (r AuthorityChanged) Unproven() string {
	listed := slices.ContainsFunc(r.Authorities, func(a Authority) bool { return a.CertificateID == r.CertificateID })
	return unshown(r.Saved && listed, "the authority")
}

// AuthorityGone is the verdict on retiring an authority.
type AuthorityGone struct {
	Gone          bool        `json:"gone" doc:"A fresh list no longer has the authority."`
	CertificateID Base64ID    `json:"certificateId"`
	Authorities   []Authority `json:"authorities" doc:"As listed afresh."`
	Verdict
}

// Unproven returns "" if the authority is gone.
func (r AuthorityGone) Unproven() string { return ungone(r.Gone, "the authority") }
