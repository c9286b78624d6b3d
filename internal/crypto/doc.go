// Package crypto has no code. Its directories have the cryptography:
//
//   - keyring: wraps stored keys under data keys, and data keys under a key-encryption key
//   - rowmac: the MAC of each row that grants a right
//   - pki: certificates, CRLs and chains; jws: signed tokens
//   - password: password hashes, and the limit of concurrent hashing
//
// May import: clients/go/shared, internal/keyserver, internal/platform
package crypto
