package controllers

// What objects need of others, and are needed by: each is spelled in one way, here.

// objectKey is an object of the cluster.
func objectKey(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

// peerKey is a peer of a key server, by its system id.
func peerKey(system string) string { return "peer " + system }

// roleKey is a role of a key server, by its name.
func roleKey(name string) string { return "role " + name }

// directoryKey is a templated directory of a key server, by its path with the slash at
// the end.
func directoryKey(path string) string { return "directory " + path }

// principalKey is a principal of a key server, as TYPE/NAME.
func principalKey(principal string) string { return "principal " + principal }
