// Package auditlog has the commands of keyserverctl that verify an audit log. audit verify verifies the audit log of a
// key server. audit receipt verify verifies a row with its receipt, without a key server. Package auditverify has the
// code that keyserver-operator also uses.
//
// It may import clients/go/client, clients/go/schema, audit, audit/tree, auditverify, ctl/login, keyserver and program.
package auditlog
