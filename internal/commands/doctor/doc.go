// Package doctor runs checks that change nothing and prints their findings. It has the checks of a key server (Service)
// and of a cluster (Cluster), which keyserverctl links. The checks of a database are in doctor/storecheck.
//
// A check reports each finding as a line. It also fails if it cannot do its work.
//
// It may import api, clients/go/client, clients/go/schema, commands/cluster, commands/program and platform/fault.
package doctor
