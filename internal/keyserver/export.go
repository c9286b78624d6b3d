package keyserver

// KeyExport is a request for a key, encrypted for a principal.
type KeyExport struct {
	Link      HiddenLink
	Recipient PrincipalRef
}

// ExportedKey is a key that only the recipient can read.
type ExportedKey struct {
	JWE         string // compact JWE (RFC 7516) with the bytes of the key
	Algorithm   string // how the content key is wrapped: RSA-OAEP-256 or ECDH-ES+A256KW
	Recipient   Principal
	Certificate Certificate // its public key encrypts the key
}
