// Package approval has the operations that need several people: the policy that says which operations these are, and
// requests that wait for approval. Pure functions compute the state of a request (policy.go, state.go). Service reads
// and writes the approvals, with one transaction for each step. The gate of the key server evaluates the policy, and
// httpapi executes an approved request.
package approval
