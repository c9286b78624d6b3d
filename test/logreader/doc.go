// Package logreader reads the audit tree of a real key server as those do who know C2SP
// logs and nothing of ours: with golang.org/x/mod/sumdb, by which Go reads its checksum
// database, and with Tessera's client.
package logreader
