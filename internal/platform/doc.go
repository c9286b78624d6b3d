// Package platform has no code. Its directories hold helpers that know nothing about the state of a key server:
//
//   - fault: errors with a code; canonical: canonical base64 and JSON; urltext: URLs without secrets
//   - quota: shares of a resource; singleflight: callers share one call; await: calls without a cancellation
//   - clientaddr: the client address of a request; monotonic: the clock of the process; brief: shortened text
//   - values: ids, hidden links, rights and time stamps, in their text formats
//   - blobstore: files in a directory or bucket; clouddrivers: key management services and buckets; unixsocket; tracing; version
//
// May import: nothing
package platform
