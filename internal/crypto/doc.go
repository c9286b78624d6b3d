// Package crypto contains no code. Its directories contain the cryptography:
//
//   - keyring: wraps stored keys under data keys, and data keys under a key-encryption key
//   - rowmac: the MAC of each database row that gives rights
//   - pki: certificates, CRLs and chains; jws: signed tokens
//   - password: password hashes, and the limit of concurrent hashes
//
// May import: clients/go/shared, internal/keyserver, internal/platform
package crypto
