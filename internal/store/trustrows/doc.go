// Package trustrows keeps the trust of a key server in a database: CAs, certificates, revocation,
// its own authorities, peers with their authorities and calls, trust in principals, and witnessed
// logs.
//
// Every row has a MAC, which a query checks. A write gives its changes to the Recorder of the
// transaction.
//
// May import: internal/store/sqldb, internal/crypto/rowmac, internal/keyserver
package trustrows
