// Package auth contains no code. Its directories identify the caller of a request:
//
//   - session: logins, open sessions and their limits, one file per login method
//   - dpop: proofs of possession (RFC 9449)
//   - oidc, tokenreview, ldap: the identity providers that check a credential
//
// internal/engine authorizes the operations of an authenticated principal.
//
// May import: clients/go/shared, internal/crypto, internal/keyserver, internal/platform, internal/store
package auth
