// Package sources reads what objects refer to in the manager's own cluster:
// values of Secrets and ConfigMaps, and the issuer of service account tokens.
//
// Only metadata is cached and watched. Metadata of Secrets is watched
// only in namespaces in which objects refer to Secrets (secrets.go).
// A value is read when it is needed, and cached only if it is public.
//
// May import: api, internal/operator/connection
package sources
