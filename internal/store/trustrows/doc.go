// Package trustrows stores the trust of a key server in a database: trusted CAs, certificates,
// revocation, internal CAs, peers with their CAs and calls, principal trusts, and witnessed logs.
//
// Rows have a MAC, except the calls of peers. Queries check the MAC. Writes record their changes
// in the Recorder of the transaction.
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver
package trustrows
