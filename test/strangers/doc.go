// Package strangers attacks a running server by its sockets, without a session,
// and looks at what somebody honest beside it still gets.
package strangers
