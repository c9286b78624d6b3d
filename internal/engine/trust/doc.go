// Package trust has the operations that decide which certificates and key servers are trusted. The gate
// decides on each of them.
//
//   - trustedca.go, revocation.go: external CAs and revocations by them; authority.go: the key server's own CAs
//   - trustedserver.go: peers; principaltrust.go: principals that a peer may know or must not use
//   - peerstanding.go, peerauthority.go: the registry of peers, which package peer reads
//
// May import: internal/crypto/pki, internal/engine (ca, cache, internal/gate), internal/keyserver,
// internal/platform/fault, internal/store
package trust
