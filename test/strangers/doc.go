// Package strangers attacks a running server over its sockets, mostly without a session, and measures how well it
// serves an honest client.
package strangers
