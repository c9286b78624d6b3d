// Package keyring keeps keys at rest. Each key is wrapped by AES-256-GCM under
// one data key; the data key is kept beside them, wrapped by a key-encryption
// key that is not: a cloud's key management service, or 32 bytes in a file.
//
// Nothing secret is in an error of this package or in how its types print.
package keyring

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gocloud.dev/secrets"
	"gocloud.dev/secrets/localsecrets"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring/kmsv2"
)

// kekLen is the length of a local key-encryption key in bytes.
const kekLen = 32

// Keeper wraps and unwraps with the key-encryption key.
type Keeper struct {
	keeper   *secrets.Keeper
	scheme   string
	identity []byte // what tells it from another one: its URL, or a hash of the key
	// alive asks whoever has the key whether they are there, at no cost. nil: nobody to ask.
	alive func(context.Context) error
}

// Open opens the key-encryption key that a gocloud.dev/secrets URL names. The
// URL may hold the key itself, so errors say nothing of it but its scheme.
func Open(ctx context.Context, url string) (*Keeper, error) {
	scheme, rest, found := strings.Cut(url, "://")
	if !found || scheme != kmsv2.Scheme && !secrets.DefaultURLMux().ValidKeeperScheme(scheme) {
		return nil, fmt.Errorf("the URL of the key-encryption key has none of the schemes that this program knows: %s", schemes())
	}
	switch scheme {
	case localsecrets.Scheme:
		return openLocal(rest)
	case kmsv2.Scheme:
		keeper, err := kmsv2.Open(rest)
		if err != nil {
			return nil, err
		}
		return &Keeper{keeper: secrets.NewKeeper(keeper), scheme: scheme, identity: []byte(url), alive: keeper.Healthy}, nil
	}
	keeper, err := secrets.OpenKeeper(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("the key-encryption key cannot be opened: check the %s URL and the credentials for it", scheme) // err may repeat the URL
	}
	return &Keeper{keeper: keeper, scheme: scheme, identity: []byte(url)}, nil
}

// openLocal takes a key in either alphabet of base64. The library's own opener
// would make a random key for an empty URL, under which nothing could be
// opened again.
func openLocal(text string) (*Keeper, error) {
	if text != strings.TrimSpace(text) {
		return nil, errors.New("the key-encryption key has white space at an end, perhaps a newline; remove it")
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	defer clear(key)
	if err != nil || len(key) != kekLen || len(text) != base64.StdEncoding.EncodedLen(kekLen) {
		return nil, errors.New("the key-encryption key is not 32 bytes in base64: want base64key:// and 44 characters")
	}
	var kek [kekLen]byte
	copy(kek[:], key)
	defer clear(kek[:])
	identity := sha256.Sum256(kek[:])
	return &Keeper{keeper: localsecrets.NewKeeper(kek), scheme: localsecrets.Scheme, identity: identity[:]}, nil
}

// Close gives up what the keeper holds.
func (k *Keeper) Close() error { return k.keeper.Close() }

// String hides the key from every formatting verb.
func (k *Keeper) String() string { return "key-encryption key" }

// GoString hides the key from %#v.
func (k *Keeper) GoString() string { return k.String() }

func schemes() string {
	known := append(secrets.DefaultURLMux().KeeperSchemes(), kmsv2.Scheme)
	slices.Sort(known)
	for i, s := range known {
		known[i] = s + "://"
	}
	return strings.Join(known, ", ")
}

// newKey draws 32 random bytes.
func newKey() []byte {
	key := make([]byte, kekLen)
	_, _ = rand.Read(key) // never fails
	return key
}
