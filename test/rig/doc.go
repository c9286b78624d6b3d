// Package rig contains helpers for suites that test key servers over HTTP. The package itself needs only Go.
//
// A Site is a client configuration for one key server. The server runs in the test's process
// (internal/server/testserver) or in another process (test/program). A Request gets an Answer with one JSON Object as
// its body. As and AsAdmin log in once per name and return the same session; LogIn logs in each time. A User is a
// principal that a test created and logged in. A peer is a site that another site has registered: Trust trusts its CA,
// Blob returns its trust blob, and Expose exposes a principal to it. Soon and Succeeds wait for a condition, at most
// Patience.
//
// Each program of the machine has a separate package, and make finds the needs of a test by its imports
// (hack/needs.sh): internal/store/pgtest is for PostgreSQL, its pgbouncer for a connection pooler,
// internal/auth/ldap/ldaptest for an LDAP directory, test/rig/rsyslog for a syslog server, test/rig/controlplane for a
// cluster, test/rig/node for Node.js, test/rig/curl for curl.
package rig
