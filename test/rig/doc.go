// Package rig is what the suites of whole key servers have in common: how a test
// speaks to one over HTTP, whom it makes there, and how it waits.
//
// # Vocabulary
//
// A Site is one key server as its clients see it, whatever stands behind: a
// server in the test's own process (internal/server/testserver) or a process of its own
// (test/program). Suites embed it into what they call a server themselves.
//
// A Request is what a client sends, an Answer what it gets: status, headers, and
// a body, which is always one JSON object. An Object is such an object, or one
// within it.
//
// A session is the id that a login was answered with; a request is sent with one
// or, where it is empty, with none. As and AsAdmin log in once for each name and
// hand out the same session from then on; LogIn logs in every time.
//
// A User is a principal that a test made, logged in at the site that it is a
// principal of. It mints keys and grants rights on them to other users.
//
// A peer is a site that another one has registered. Trust lets a site believe the
// CA of another one, Blob is what it registers the other one by, and Expose
// lets a peer know of a principal.
//
// Rows are those of the audit trail that one request has left. Trail spells them.
//
// Soon and Succeeds wait for what somebody else brings about. Both give up, and
// fail the test, after Patience, which only what hangs can exhaust.
//
// A CA is a certificate that a test has a site trust, where nothing has to be
// signed with it.
//
// An Output is what a process prints, readable while it prints more.
//
// A free address is one that nobody listened on a moment ago: for a server that
// is stopped and has to be found again where it was.
//
// # What a test needs of the machine
//
// This package needs nothing but Go. What needs a program of the machine is a
// package of its own, and who imports it says with that what he needs
// (hack/needs.sh): internal/store/pgtest a PostgreSQL server,
// internal/store/pgtest/pgbouncer a pooler, internal/auth/ldap/ldaptest a directory, test/rig/rsyslog a syslog server, test/rig/controlplane a cluster, test/rig/node Node.js, test/rig/curl
// curl, and test/program the program itself.
package rig
