// Package auditlog has the commands of keyserverctl that verify the audit log of a key server (audit verify), and a row by
// its receipt without a key server (audit receipt verify). The parts that keyserver-operator shares are in auditverify.
//
// It may import clients/go/client, clients/go/schema, audit, audit/tree, auditverify, ctl/login, keyserver and program.
package auditlog
