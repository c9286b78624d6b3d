// Package passwordtest gives tests a cost of password hashes that takes next to no
// time. No program may import it.
package passwordtest

import "github.com/keyserver-operator/keyserver-operator/internal/crypto/password"

// Cost is the least that argon2id has.
var Cost = password.Cost{MemoryKiB: 8, Passes: 1, Lanes: 1}
