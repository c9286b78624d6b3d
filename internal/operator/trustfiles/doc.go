// Package trustfiles is what the manager does for the key server beside it, so
// that each of the two needs no more rights than its own: it keeps a file with
// the cluster's issuer keys, because the key server has no credential for
// Kubernetes, and it publishes the key server's CA certificate, because only
// the manager may write to Kubernetes.
//
// Both are loops that repeat one idempotent step. A step that fails leaves what
// an earlier one wrote in place, is logged when its reason changes, and is
// tried again.
package trustfiles
