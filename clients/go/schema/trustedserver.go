package schema

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
)

// TrustBlob registers one key server at another: four fields separated by tabs
// (system id, server name, external listener port, base64 PKCS#7 chain). It has
// exactly one valid form.
type TrustBlob values.TrustBlob

// MarshalText encodes the blob.
func (b TrustBlob) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText accepts only the canonical form. Its error describes the problem and
// quotes nothing of the text.
func (b *TrustBlob) UnmarshalText(text []byte) error {
	parsed, err := values.ParseTrustBlob(string(text))
	if err != nil {
		return err
	}
	*b = TrustBlob(parsed)
	return nil
}

// ParseTrustBlob parses a blob. The error is the end of a sentence that begins
// with the field name.
func ParseTrustBlob(text string) (b TrustBlob, err error) {
	err = b.UnmarshalText([]byte(text))
	return b, err
}

// String returns the canonical form.
func (b TrustBlob) String() string { return values.TrustBlob(b).String() }

// TrustedServer is a registered peer key server.
type TrustedServer struct {
	SystemID             *SystemID    `json:"systemId" doc:"System id, which names the peer in paths."`
	ServerName           *string      `json:"serverName" doc:"Host name or address of the peer."`
	Port                 *int         `json:"port" doc:"Port of the peer's external listener."`
	FriendlyName         *string      `json:"friendlyName"`
	Description          *string      `json:"description"`
	Witness              *bool        `json:"witness,omitzero" doc:"True if the peer and this key server cosign each other's checkpoints, as soon as both have this setting."`
	TransportPrincipalID *DecimalID   `json:"transportPrincipalId" doc:"Principal as which the peer connects here, in decimal. It does not identify the peer."`
	RoleIDs              []HexID      `json:"roleIds" doc:"Roles of the transport principal."`
	Certificate          *Certificate `json:"certificate" doc:"Certificate of the peer, without its body unless bodies were requested."`
	TrustBlob            *TrustBlob   `json:"trustBlob,omitzero" doc:"Trust blob with which the peer was registered; present if bodies were requested."`
}

// TrustedServersQuery selects registered peers.
type TrustedServersQuery struct {
	Name *string `query:"name" limit:"1..253" doc:"Server name of a peer, compared exactly. If omitted, all peers are listed."`

	IncludeBodies bool `query:"includeBodies" doc:"Also return the trust blob of each peer and the DER of its certificate."`
}

// TrustedServerList is the response of GET /api/trusted-servers.
type TrustedServerList struct {
	TrustedServers []TrustedServer `json:"trustedServers"`
	MatchedOn      string          `json:"matchedOn,omitzero" const:"serverName" doc:"Field that the search compared; absent if all peers are listed."`
}

// AddTrustedServerRequest registers a peer.
type AddTrustedServerRequest struct {
	TrustBlob    TrustBlob `json:"trustBlob" names:"peer" doc:"Trust blob exactly as GET /api/trust/local-info of the peer returns it."`
	FriendlyName string    `json:"friendlyName" limit:"1..128"`
	Description  string    `json:"description" limit:"0..1024"`
	Witness      bool      `json:"witness,omitzero" doc:"Extension. The peer and this key server cosign each other's checkpoints, as soon as both have this setting."`
	Replace      bool      `json:"replace,omitzero" doc:"Extension. If the system id is registered, replace its record in one step after the same checks, instead of refusing with ALREADY_EXISTS. Its transport principal keeps its id, flags and roles. ACL rows and principal trusts also stay. Also needs the operation for removing a peer."`
}

// TrustedServerSaved is the result of registering a peer.
type TrustedServerSaved struct {
	TrustedServers []TrustedServer `json:"trustedServers" doc:"Objects from the second read."`
	SystemID       SystemID        `json:"systemId" doc:"System id of the requested peer."`
	Saved          bool            `json:"saved" doc:"True if the second read shows the system id with everything that was sent."`
	ACLSideEffect  string          `json:"aclSideEffect,omitzero" doc:"Effect on ACL rows: those that an earlier removal had purged, or those of a replaced peer."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the peer in the list.
func (r TrustedServerSaved) MissingEvidence() string {
	return notShown(r.Saved && slices.ContainsFunc(r.TrustedServers, func(s TrustedServer) bool {
		return s.SystemID != nil && *s.SystemID == r.SystemID
	}), "the peer")
}

// UpdateTrustedServerRequest changes a peer's record. An omitted field stays as it is.
type UpdateTrustedServerRequest struct {
	SystemID     SystemID `path:"systemId" json:"-" names:"peer" doc:"System id in decimal; neither hexadecimal nor the id of the transport principal."`
	FriendlyName *string  `json:"friendlyName,omitzero" limit:"1..128"`
	Description  *string  `json:"description,omitzero" limit:"0..1024"`
	Witness      *bool    `json:"witness,omitzero" doc:"Extension, as in the registration."`
}

// TrustedServerUpdated is the result of a change.
type TrustedServerUpdated struct {
	TrustedServer *TrustedServer `json:"trustedServer" doc:"State from the second read; null if the peer is no longer listed."`
	Saved         bool           `json:"saved" doc:"True if the second read shows every field that was sent."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the peer.
func (r TrustedServerUpdated) MissingEvidence() string {
	return notShown(r.Saved && r.TrustedServer != nil && r.TrustedServer.SystemID != nil, "the peer")
}

// BySystemID is a request that only names a peer in the path.
type BySystemID struct {
	SystemID SystemID `path:"systemId" json:"-" names:"peer" doc:"System id in decimal; neither hexadecimal nor the id of the transport principal."`
}

// TrustedServerGone is the result of removing a peer.
type TrustedServerGone struct {
	Removed                      *SystemID        `json:"removed" doc:"System id of the removed peer; null if the second read still shows it."`
	TrustedServers               []TrustedServer  `json:"trustedServers" doc:"Objects from the second read."`
	ACLSideEffect                string           `json:"aclSideEffect,omitzero" doc:"Effect on the ACL rows of the peer's principals."`
	OrphanedPrincipalTrusts      []PrincipalTrust `json:"orphanedPrincipalTrusts" doc:"Principal trusts that still name the system id, at most 1024."`
	PrincipalTrustSideEffect     string           `json:"principalTrustSideEffect,omitzero" doc:"Effect on the principal trusts for the peer."`
	TransportPrincipalSideEffect string           `json:"transportPrincipalSideEffect,omitzero" doc:"Effect on the peer's transport principal."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the peer.
func (r TrustedServerGone) MissingEvidence() string { return notDeleted(r.Removed != nil, "the peer") }

// TrustInfo is the response of GET /api/trust/local-info.
type TrustInfo struct {
	TrustBlob   *TrustBlob  `json:"trustBlob" doc:"Trust blob for POST /api/trusted-servers of another key server; null if another key server could not reach this one."`
	SystemID    SystemID    `json:"systemId"`
	ServerName  string      `json:"serverName"`
	Port        *int        `json:"port" doc:"Port of the external listener; null if there is none."`
	Chain       Base64      `json:"chain" doc:"PKCS#7 with the certificate of this server and the internal CA that issued it."`
	Certificate Certificate `json:"certificate" doc:"Certificate of this server."`
	Detail      string      `json:"detail" doc:"Text for people; the wording may change."`
}
