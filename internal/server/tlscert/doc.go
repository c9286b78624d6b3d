// Package tlscert renews and reloads the certificates of the TLS listeners, and checks the certificates of clients.
//
//   - Files is the certificate of --tls-cert and --tls-key. It follows changes of the files.
//   - Issued is the certificate that a CA of this key server issues, for peers and, without --tls-cert, for the API.
//   - ClientGate checks client certificates of the API. It closes connections when their CA is no longer trusted.
//
// Listeners, flags and TLS versions belong to internal/server, the CAs to internal/engine/ca. The package may import
// internal/crypto/pki, internal/engine/ca, internal/keyserver, internal/platform/fault and internal/store/sqlstore.
package tlscert
