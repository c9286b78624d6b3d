// Package engine is the key server: it implements the operations of package keyserver on a store. The gate
// (internal/gate) authorizes and audits every operation before the operation has an effect.
//
//   - access: pure functions that evaluate an ACL; explain.go: why a request is allowed or refused
//   - internal/keys: operations with keys and their ACLs; trust: CAs, peers and revocation
//   - verified: writes that are read back; approval: operations that need several people
//   - ca: the CAs of the key server; peer: other key servers; rewrap: rotation of data keys
//   - bootstrap: the first state; deletion: principal deletion; usagequota: limited uses of a key
//
// May import: clients/go/shared, internal/audit, internal/crypto, internal/keyserver, internal/platform, internal/store
package engine
