// Package gate authorizes and audits the operations of the key server. No operation has an effect before the gate has
// decided and the audit row of the decision is durable. Only this package writes audit rows of callers.
//
//   - gate.go: the decision and its row; batch.go: many decisions with one commit; guard.go: other packages
//   - delegation.go, evidence.go, issuer.go: whether the caller's principal may act now
//   - approval.go: whether an approval is needed
//   - peer.go: requests of other key servers; forward.go: requests to other key servers
//   - view.go: explanations, which evaluate a request without an effect
//
// May import: internal/crypto, internal/engine (access, approval, ca, cache), internal/keyserver, internal/platform,
// internal/store
package gate
