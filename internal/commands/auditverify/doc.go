// Package auditverify has the code that all commands for audit log verification share: flags for the key and for saved
// checkpoints, and the report. keyserver-operator verifies a database, and keyserverctl the audit log of a key server.
// Each of these programs reads the rows itself.
//
// It may import clients/go/schema, audit, audit/tree, keyserver and program, and no store.
package auditverify
