// Package keyring encrypts stored keys. Each key is wrapped by AES-256-GCM under a data key. The data key is stored in
// the same database. It is wrapped by a key-encryption key that is stored elsewhere: in a cloud's key management
// service, in a KMS plugin, or in a file with 32 bytes.
//
// Errors and formatted values of this package contain no secrets.
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

// Provider wraps and unwraps data keys with the key-encryption key.
type Provider struct {
	keeper   *secrets.Keeper
	scheme   string
	identity []byte // identifies the key-encryption key: its URL, or a hash of the key
	// alive checks the connection to the KMS provider without using the key. It is nil if the provider has no such check.
	alive func(context.Context) error
}

// Open opens the key-encryption key of a gocloud.dev/secrets URL. The URL may contain the key itself, so errors contain
// only its scheme.
func Open(ctx context.Context, url string) (*Provider, error) {
	scheme, rest, found := strings.Cut(url, "://")
	if !found || scheme != kmsv2.Scheme && !secrets.DefaultURLMux().ValidKeeperScheme(scheme) {
		return nil, fmt.Errorf("the URL of the key-encryption key has an unknown scheme; use one of %s", schemes())
	}
	switch scheme {
	case localsecrets.Scheme:
		return openLocal(rest)
	case kmsv2.Scheme:
		keeper, err := kmsv2.Open(rest)
		if err != nil {
			return nil, err
		}
		return &Provider{keeper: secrets.NewKeeper(keeper), scheme: scheme, identity: []byte(url), alive: keeper.Healthy}, nil
	}
	keeper, err := secrets.OpenKeeper(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("the key-encryption key cannot be opened; check the %s URL and its credentials", scheme) // err may contain the URL
	}
	return &Provider{keeper: keeper, scheme: scheme, identity: []byte(url)}, nil
}

// openLocal accepts a key in standard or URL-safe base64. The library's own opener would create a random key for an
// empty URL, and no later process could unwrap the data keys.
func openLocal(text string) (*Provider, error) {
	if text != strings.TrimSpace(text) {
		return nil, errors.New("the key-encryption key begins or ends with white space, perhaps a newline; remove it")
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	defer clear(key)
	if err != nil || len(key) != kekLen || len(text) != base64.StdEncoding.EncodedLen(kekLen) {
		return nil, errors.New("the key-encryption key is not 32 bytes in base64; give base64key:// and 44 characters")
	}
	var kek [kekLen]byte
	copy(kek[:], key)
	defer clear(kek[:])
	identity := sha256.Sum256(kek[:])
	return &Provider{keeper: localsecrets.NewKeeper(kek), scheme: localsecrets.Scheme, identity: identity[:]}, nil
}

// Close releases the resources of the provider.
func (k *Provider) Close() error { return k.keeper.Close() }

// String returns a text without the key.
func (k *Provider) String() string { return "key-encryption key" }

// GoString returns a text without the key for %#v.
func (k *Provider) GoString() string { return k.String() }

func schemes() string {
	known := append(secrets.DefaultURLMux().KeeperSchemes(), kmsv2.Scheme)
	slices.Sort(known)
	for i, s := range known {
		known[i] = s + "://"
	}
	return strings.Join(known, ", ")
}

func newKey() []byte {
	key := make([]byte, kekLen)
	_, _ = rand.Read(key) // never fails
	return key
}
