// Package keys has the operations with keys: mint, use, rotate, destroy, list and export keys, and change their ACLs.
// The gate decides on each operation.
//
//   - key.go: keys in memory, the checks of their ACLs, and HMACs; acl.go: changes of ACLs
//   - mac.go, macbatch.go, encrypt.go: operations with the newest key of a lineage
//   - keylife.go, aging.go: states, rotation and destruction of keys
//   - forward.go, forwardcrypto.go: keys of other key servers
//
// May import: internal/crypto/keyring, internal/engine (access, approval, cache, ciphertext, internal/gate,
// usagequota), internal/keyserver, internal/platform/fault, internal/store
package keys
