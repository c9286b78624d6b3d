// Package strangers attacks a running server over its sockets, mostly without a session, and measures how well
// an honest client is still served.
package strangers
