// Package auditlog has the commands of keyserverctl that verify the audit log of a key server (audit verify), or a row
// with its receipt (audit receipt verify), which needs no key server. Package auditverify has the code that
// keyserver-operator also uses.
//
// It may import clients/go/client, clients/go/schema, audit, audit/tree, auditverify, ctl/login, keyserver and program.
package auditlog
