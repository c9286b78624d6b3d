// Package trustfiles exchanges public files with the key server in the same Pod, so that neither process needs the
// permissions of the other. For the key server, which has no credential for Kubernetes, it writes the issuer keys of
// the cluster to a file. It publishes the key server's CA certificate, because only the manager may write to
// Kubernetes.
//
// IssuerKeys and Authority are loops that repeat one idempotent step. If a step fails, the earlier output stays. The
// error is logged when it changes, and the step is retried.
package trustfiles
