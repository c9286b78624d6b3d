// Package platform contains no code. Its directories contain helpers that do not use the state of a key server:
//
//   - fault: errors with a code; urltext: URLs without secrets
//   - quota: shares of a resource; await: calls that cannot be cancelled
//   - clientaddr: the client address of a request; monotonic: the clock of the process
//   - blobstore: files in a directory or bucket; clouddrivers: key management services and buckets
//   - unixsocket; tracing; version
//
// May import: nothing
package platform
