// Package approval has what takes two people: the policy that says which
// operations do, and the requests that somebody asked others to approve. What a
// request may become is decided by pure functions (policy.go, state.go); Service
// reads and writes what they need, in one transaction for each step. The gate of
// the key server asks the policy, and whoever serves a request runs it.
package approval
