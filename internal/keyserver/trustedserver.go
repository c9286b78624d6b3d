package keyserver

import "github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"

// MaxTrustedServers bounds the list of peers, which is read completely.
const MaxTrustedServers = 1024

// TrustedServer is a registered peer key server. It is identified by its system id, never
// by its transport principal.
type TrustedServer struct {
	System       SystemID
	Name         string // as in its trust blob: host name or address
	Port         uint16 // of its external listener
	FriendlyName string
	Description  string
	// Transport is the local principal as which the peer connects.
	Transport   ID
	Roles       []ID        // of Transport
	Certificate Certificate // the peer's own, the leaf of the chain
	Chain       []byte      // PKCS#7, as received
	// Witness reports that the peer and this key server witness each other's audit logs.
	Witness bool
}

// NewTrustedServer is a request to register a peer.
type NewTrustedServer struct {
	Blob         TrustBlob
	FriendlyName string
	Description  string
	Witness      bool
	// Replace permits a system id that is already registered. The peer's record is then replaced, and the other objects
	// of the peer stay.
	Replace bool
}

// TrustedServerChange lists the changes to a peer's record; a nil field stays as it is.
type TrustedServerChange struct {
	System       SystemID
	FriendlyName *string
	Description  *string
	Witness      *bool
}

// TrustedServerAdded is additional information about a registration. It is no proof.
type TrustedServerAdded struct {
	Transport ID
	Restored  int  // restored ACL rows that an earlier removal had purged
	Replaced  bool // the system id was registered; its record was replaced
}

// TrustedServerRemoved is additional information about a removal.
type TrustedServerRemoved struct {
	Transport ID
	Purged    int // ACL rows kept aside until the peer is registered again
	// Orphans are the principal trusts that name the peer, at most MaxUnwindowed;
	// OrphanCount counts all.
	Orphans     []PrincipalTrust
	OrphanCount int
}

// TrustInfo is the data that this key server gives to other key servers.
type TrustInfo struct {
	System      SystemID
	ServerName  string
	Port        uint16 // of the external listener; 0 for none
	Certificate Certificate
	Chain       []byte // PKCS#7 of the certificate and the internal CA
}

// Blob returns the trust blob. It returns false if no key server could use the blob to register this one: there is no
// external listener, or the server name is not valid.
func (t TrustInfo) Blob() (TrustBlob, bool) {
	b := TrustBlob{System: t.System, ServerName: t.ServerName, Port: t.Port, Chain: t.Chain}
	return b, t.Port != 0 && values.ValidServerName(t.ServerName)
}
