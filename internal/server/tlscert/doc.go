// Package tlscert keeps the certificates of the TLS listeners current, and judges the certificates of
// clients.
//
//   - Files is the certificate of --tls-cert and --tls-key. It follows changes of the files.
//   - Issued is the certificate by a CA of this key server. Peers see it, and clients of the API
//     without --tls-cert.
//   - ClientGate accepts or refuses client certificates of the API. It closes connections when their
//     CA is no longer trusted.
//
// Listeners, flags and TLS versions belong to internal/server, the CAs to internal/engine/ca.
// The package may import internal/crypto/pki, internal/engine/ca, internal/keyserver,
// internal/platform/fault and internal/store/sqlstore.
package tlscert
