// Package trustrows keeps in a database whom a key server trusts: CAs, certificates, revocation,
// its own authorities, peers with their authorities and calls, principals of peers, and the logs
// that it witnesses.
//
// Every row has a MAC, which a query checks. A write gives its changes to the Recorder of the
// transaction.
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver
package trustrows
