// Package rig contains helpers of the suites that test key servers over HTTP. The package itself needs only Go.
//
// A Site is one key server as its clients see it: in the test's process (internal/server/testserver) or in
// another (test/program). A Request gets an Answer with one JSON Object as its body. As and AsAdmin log in once
// per name and return the same session, LogIn logs in each time. A User is a principal that a test created and
// logged in. A peer is a site that another site has registered: Trust trusts its CA, Blob returns its trust
// blob, Expose shows it a principal. Soon and Succeeds wait for a condition, at most Patience.
//
// Programs of the machine have separate packages, and make finds a test's needs by its imports (hack/needs.sh):
// internal/store/pgtest PostgreSQL, its pgbouncer a pooler, internal/auth/ldap/ldaptest a directory,
// test/rig/rsyslog a syslog server, test/rig/controlplane a cluster, test/rig/node Node.js, test/rig/curl curl.
package rig
