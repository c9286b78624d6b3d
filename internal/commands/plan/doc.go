// Package plan says what the manager would do about manifests that are not
// applied yet. It puts them, and what they refer to, where the manager's own
// reconcilers find them (snapshot.go), lets each of those make one pass over
// connections that let no write through, and prints what they decided.
//
// Nothing leaves the process but reading: the snapshot keeps what the
// reconcilers write to the cluster, and package controllers refuses what they
// would write to a key server.
package plan
