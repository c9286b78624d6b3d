package controllers

// The keys by which objects need others. Each kind of key has one format, defined here.

// objectKey returns the key of an object of the cluster.
func objectKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// peerKey returns the key of a peer of a key server, by its system id.
func peerKey(system string) string { return "peer " + system }

// roleKey returns the key of a role of a key server, by its name.
func roleKey(name string) string { return "role " + name }

// directoryKey returns the key of a templated directory of a
// key server, by its path with the trailing slash.
func directoryKey(path string) string { return "directory " + path }

// principalKey returns the key of a principal of a key server, given as TYPE/NAME.
func principalKey(principal string) string { return "principal " + principal }
