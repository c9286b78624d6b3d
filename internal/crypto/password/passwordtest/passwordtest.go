// Package passwordtest contains a very low cost of password hashes for tests. No program may import it.
package passwordtest

import "github.com/keyserver-operator/keyserver-operator/internal/crypto/password"

// Cost is the minimum cost of argon2id.
var Cost = password.Cost{MemoryKiB: 8, Passes: 1, Lanes: 1}
