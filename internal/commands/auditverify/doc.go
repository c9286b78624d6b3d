// Package auditverify has the shared parts of all commands that verify the audit log: the key and the noted checkpoints
// that flags name, and the report of a verification. keyserver-operator verifies a database. keyserverctl verifies the
// log of a key server. Each reads the rows itself.
//
// It may import clients/go/schema, audit, audit/tree, keyserver and program, and no store.
package auditverify
