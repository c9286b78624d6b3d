// Package passwordtest gives tests a very cheap cost of password hashes. No program may
// import it.
package passwordtest

import "github.com/keyserver-operator/keyserver-operator/internal/crypto/password"

// Cost is the minimum cost of argon2id.
var Cost = password.Cost{MemoryKiB: 8, Passes: 1, Lanes: 1}
