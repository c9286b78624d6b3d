// Package trust has the operations that decide which certificates and key servers are trusted. The gate decides on each
// operation.
//
//   - trustedca.go, revocation.go: external CAs and their revocation lists; authority.go: the key server's own CAs
//   - trustedserver.go: peers; principaltrust.go: principals that a peer may learn of, or must not use
//   - peerstanding.go, peerauthority.go: the registry of peers, which package peer reads
//
// May import: internal/crypto/pki, internal/engine (ca, cache, internal/gate), internal/keyserver,
// internal/platform/fault, internal/store
package trust
