// Package trust has the operations that decide whom the key server trusts. The gate decides on each of them.
//
//   - trustedca.go, revocation.go: CAs of others, and what is known to be revoked; authority.go: its own CAs
//   - trustedserver.go: peers; principaltrust.go: principals that a peer may know or must not use
//   - peerstanding.go, peerauthority.go: the registry of peers, which package peer reads
//
// May import: internal/crypto/pki, internal/engine (ca, cache, internal/gate), internal/keyserver,
// internal/platform/fault, internal/store
package trust
