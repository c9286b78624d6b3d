// Package sources reads values outside of an object: Secrets and ConfigMaps to which objects refer, and the issuer of
// the cluster's service account tokens.
//
// Only metadata is cached and watched. Metadata of Secrets is watched only in namespaces in which objects refer to
// Secrets (secrets.go). A value is read when it is needed. Only public values are cached.
//
// May import: api, internal/operator/connection
package sources
