// Package strangers attacks a running server over its sockets, mostly without a session, and measures the service for
// an honest client.
package strangers
