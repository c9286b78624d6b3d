package schema

import (
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TrustBlob registers one key server at another: four fields separated by tabs
// (system id, server name, external listener port, base64 PKCS#7 chain). It has
// exactly one valid form.
type TrustBlob keyserver.TrustBlob

// MarshalText encodes the blob.
func (b TrustBlob) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText accepts only the canonical form. Its error describes the problem and
// quotes nothing of the text.
func (b *TrustBlob) UnmarshalText(text []byte) error {
	parsed, err := keyserver.ParseTrustBlob(string(text))
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
func (b TrustBlob) String() string { return keyserver.TrustBlob(b).String() }

// TrustedServer is a registered peer key server.
type TrustedServer struct {
	SystemID             *SystemID    `json:"systemId" doc:"Names the peer in paths."`
	ServerName           *string      `json:"serverName" doc:"Host name or address of the peer."`
	Port                 *int         `json:"port" doc:"Of the peer's external listener."`
	FriendlyName         *string      `json:"friendlyName"`
	Description          *string      `json:"description"`
	Witness              *bool        `json:"witness,omitzero" doc:"Whether the peer and this key server cosign each other's checkpoints, once both say so."`
	TransportPrincipalID *DecimalID   `json:"transportPrincipalId" doc:"The principal as which the peer connects here, in decimal; it does not name the peer."`
	RoleIDs              []HexID      `json:"roleIds" doc:"Roles of the transport principal."`
	Certificate          *Certificate `json:"certificate" doc:"The peer's own certificate, without its body unless bodies were asked for."`
	TrustBlob            *TrustBlob   `json:"trustBlob,omitzero" doc:"What the peer was registered with, where bodies were asked for."`
}

// TrustedServersQuery selects registered peers.
type TrustedServersQuery struct {
	Name *string `query:"name" limit:"1..253" doc:"The server name of a peer, compared exactly; left out, every peer is listed."`

	IncludeBodies bool `query:"includeBodies" doc:"Also answer each peer's trust blob and the DER of its certificate."`
}

// TrustedServerList is the response of GET /api/trusted-servers.
type TrustedServerList struct {
	TrustedServers []TrustedServer `json:"trustedServers"`
	MatchedOn      string          `json:"matchedOn,omitzero" enum:"serverName" doc:"What the search compared; absent where everything is listed."`
}

// AddTrustedServerRequest registers a peer.
type AddTrustedServerRequest struct {
	TrustBlob    TrustBlob `json:"trustBlob" names:"peer" doc:"Verbatim, as the peer's GET /api/trust/local-info answers it."`
	FriendlyName string    `json:"friendlyName" limit:"1..128"`
	Description  string    `json:"description" limit:"0..1024"`
	Witness      bool      `json:"witness,omitzero" doc:"An extension: the peer and this key server cosign each other's checkpoints, once both say so."`
	Replace      bool      `json:"replace,omitzero" doc:"An extension: if the system id is registered, replace its record in one step, after the same checks, instead of refusing with ALREADY_EXISTS. Its transport principal stays with id, flags and roles, and so do ACL rows and principal trusts. Needs the right to remove a peer as well."`
}

// TrustedServerSaved is the verdict on registering a peer.
type TrustedServerSaved struct {
	TrustedServers []TrustedServer `json:"trustedServers" doc:"As listed afresh."`
	SystemID       SystemID        `json:"systemId" doc:"Of the peer that was sent."`
	Saved          bool            `json:"saved" doc:"The system id reads back, with all that was sent."`
	ACLSideEffect  string          `json:"aclSideEffect,omitzero" doc:"What became of the ACL rows that an earlier removal had purged, or that there were of a peer that was replaced."`
	Verdict
}

// Unproven returns "" if the list that was read back has the peer.
func (r TrustedServerSaved) Unproven() string {
	return unshown(r.Saved && slices.ContainsFunc(r.TrustedServers, func(s TrustedServer) bool {
		return s.SystemID != nil && *s.SystemID == r.SystemID
	}), "the peer")
}

// UpdateTrustedServerRequest changes a peer's record. An omitted field stays as it is.
type UpdateTrustedServerRequest struct {
	SystemID     SystemID `path:"systemId" json:"-" names:"peer" doc:"Decimal, neither hexadecimal nor the transport principal's id."`
	FriendlyName *string  `json:"friendlyName,omitzero" limit:"1..128"`
	Description  *string  `json:"description,omitzero" limit:"0..1024"`
	Witness      *bool    `json:"witness,omitzero" doc:"An extension, as in the registration."`
}

// TrustedServerUpdated is the verdict on a change.
type TrustedServerUpdated struct {
	TrustedServer *TrustedServer `json:"trustedServer" doc:"As read back; null where it is no longer listed."`
	Saved         bool           `json:"saved" doc:"Every field that was sent reads back."`
	Verdict
}

// Unproven returns "" if the peer reads back.
func (r TrustedServerUpdated) Unproven() string {
	return unshown(r.Saved && r.TrustedServer != nil && r.TrustedServer.SystemID != nil, "the peer")
}

// BySystemID is a request that only names a peer in the path.
type BySystemID struct {
	SystemID SystemID `path:"systemId" json:"-" names:"peer" doc:"Decimal, neither hexadecimal nor the transport principal's id."`
}

// TrustedServerGone is the verdict on removing a peer.
type TrustedServerGone struct {
	Removed                      *SystemID        `json:"removed" doc:"The system id; null where a fresh list still has it."`
	TrustedServers               []TrustedServer  `json:"trustedServers" doc:"As listed afresh."`
	ACLSideEffect                string           `json:"aclSideEffect,omitzero" doc:"What became of the ACL rows of the peer's principals."`
	OrphanedPrincipalTrusts      []PrincipalTrust `json:"orphanedPrincipalTrusts" doc:"Principal trusts that still name the system id, 1024 at most."`
	PrincipalTrustSideEffect     string           `json:"principalTrustSideEffect,omitzero" doc:"What became of the principal trusts for the peer."`
	TransportPrincipalSideEffect string           `json:"transportPrincipalSideEffect,omitzero" doc:"What became of the peer's transport principal."`
	Verdict
}

// Unproven returns "" if the peer is gone.
func (r TrustedServerGone) Unproven() string { return ungone(r.Removed != nil, "the peer") }

// TrustInfo is the response of GET /api/trust/local-info.
type TrustInfo struct {
	TrustBlob   *TrustBlob  `json:"trustBlob" doc:"For POST /api/trusted-servers of another key server; null where that could not reach this one."`
	SystemID    SystemID    `json:"systemId"`
	ServerName  string      `json:"serverName"`
	Port        *int        `json:"port" doc:"Of the external listener; null where there is none."`
	Chain       Base64      `json:"chain" doc:"PKCS#7 of this server's certificate and the internal CA that issued it."`
	Certificate Certificate `json:"certificate" doc:"This server's own."`
	Detail      string      `json:"detail" doc:"For people; its wording may change."`
}
