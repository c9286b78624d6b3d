package controllers

// This file defines the formats of the keys of reconcile.Need.

// objectKey returns the key of a Kubernetes object.
func objectKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// peerKey returns the key of a peer with a system id.
func peerKey(system string) string { return "peer " + system }

// roleKey returns the key of a role with a name.
func roleKey(name string) string { return "role " + name }

// directoryKey returns the key of a templated directory. path has a trailing slash.
func directoryKey(path string) string { return "directory " + path }

// principalKey returns the key of a principal, written as TYPE/NAME.
func principalKey(principal string) string { return "principal " + principal }
