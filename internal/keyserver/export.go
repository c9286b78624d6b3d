package keyserver

// ExportedKey is a key that only the recipient can read.
type ExportedKey struct {
	JWE         string // compact serialisation
	Algorithm   string // how the content key is wrapped: RSA-OAEP-256 or ECDH-ES+A256KW
	Recipient   Principal
	Certificate Certificate // whose public key it is encrypted for
}
