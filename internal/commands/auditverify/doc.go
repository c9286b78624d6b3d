// Package auditverify has the parts that all commands which verify the audit log share: the key and the noted checkpoints
// that flags name, and the report of a verification. keyserver-operator verifies a database and keyserverctl the log of
// a key server; each reads the rows itself.
//
// It may import httpapi/schema, audit, audit/tree and program, and no store.
package auditverify
