// Package logreader reads the audit tree of a real key server with generic C2SP log clients:
// golang.org/x/mod/sumdb, which Go uses for its checksum database, and Tessera's client.
package logreader
