package keyserver

// MaxTrustedServers bounds the list of peers, which is read as a whole.
const MaxTrustedServers = 1024

// TrustedServer is a registered peer key server. It is named by its system id,
// never by the transport principal that stands for it here.
type TrustedServer struct {
	System       SystemID
	Name         string // as in its trust blob: host name or address
	Port         uint16 // of its external listener
	FriendlyName string
	Description  string
	// Transport is the principal of this key server as which the peer connects.
	Transport   ID
	Roles       []ID        // of the transport principal
	Certificate Certificate // the peer's own, the leaf of the chain
	Chain       []byte      // PKCS#7, as it was sent
	// Witness says that the peer and this key server witness each other's trails.
	Witness bool
}

// NewTrustedServer is a request to register a peer.
type NewTrustedServer struct {
	Blob         TrustBlob
	FriendlyName string
	Description  string
	Witness      bool
	// Replace allows the system id to be registered already: its record is
	// replaced then, and what else there is of the peer stays.
	Replace bool
}

// TrustedServerChange names what to change of a peer's record; a nil field
// stays as it is.
type TrustedServerChange struct {
	System       SystemID
	FriendlyName *string
	Description  *string
	Witness      *bool
}

// TrustedServerAdded is what the key server says that a registration did
// besides: information, not evidence.
type TrustedServerAdded struct {
	Transport   ID
	Resurrected int  // ACL rows that an earlier removal had purged
	Replaced    bool // the system id was registered, and its record was replaced
}

// TrustedServerRemoved is what the key server says that a removal did besides.
type TrustedServerRemoved struct {
	Transport ID
	Purged    int // ACL rows put aside until the peer is registered again
	// Orphans are the principal trusts that name the peer, at most
	// MaxUnwindowed of them; OrphanCount counts all.
	Orphans     []PrincipalTrust
	OrphanCount int
}

// TrustInfo is what this key server would have other key servers know of it.
type TrustInfo struct {
	System      SystemID
	ServerName  string
	Port        uint16 // of the external listener; 0 where there is none
	Certificate Certificate
	Chain       []byte // PKCS#7 of its own certificate and the internal CA
}

// Blob returns the trust blob, or false where a peer could not be registered
// with it: there is no external listener, or the server name is no host name.
func (t TrustInfo) Blob() (TrustBlob, bool) {
	b := TrustBlob{System: t.System, ServerName: t.ServerName, Port: t.Port, Chain: t.Chain}
	return b, t.Port != 0 && ValidServerName(t.ServerName)
}
