// Package platform has no code. Its directories hold helpers that know nothing about the state of a key server:
//
//   - fault: errors with a code; urltext: URLs without secrets
//   - quota: shares of a resource; await: calls without a cancellation
//   - clientaddr: the client address of a request; monotonic: the clock of the process
//   - blobstore: files in a directory or bucket; clouddrivers: key management services and buckets; unixsocket; tracing; version
//
// May import: nothing
package platform
