// Package doctor runs checks and prints their findings. It has the checks of a key server (Service) and of a cluster
// (Cluster), for keyserverctl. Package doctor/storecheck has the checks of a database. Checks change nothing.
//
// A check reports each finding as one line. If a check cannot be completed, it fails.
//
// It may import api, clients/go/client, clients/go/schema, commands/cluster, commands/program and platform/fault.
package doctor
