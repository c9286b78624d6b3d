// Package trustfiles has what the manager does for the key server in the same Pod,
// so that neither needs the other's permissions. It keeps a file with the cluster's
// issuer keys, because the key server has no credential for Kubernetes. It publishes
// the key server's CA certificate, because only the manager may write to Kubernetes.
//
// Both are loops that repeat one idempotent step. If a step fails, the output of an earlier
// one stays in place. The error is logged when its reason changes, and the step is retried.
package trustfiles
