package keyring_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gocloud.dev/secrets/localsecrets"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, store *sqlstore.Store, url string) *keyring.Keyring {
	t.Helper()
	c, err := keyring.New(t.Context(), open(t, url), store)
	must(t, err)
	return c
}

func wrap(t *testing.T, c *keyring.Keyring) []byte {
	t.Helper()
	wrapped, err := c.Wrap(keyID, 1, secret)
	must(t, err)
	return wrapped
}

func opens(t *testing.T, reason string, c *keyring.Keyring, wrapped []byte) {
	t.Helper()
	if plain, err := c.Unwrap(keyID, 1, wrapped); err != nil || !bytes.Equal(plain, secret) {
		t.Errorf("%s: %x, %v", reason, plain, err)
	}
}

func setting(t *testing.T, store *sqlstore.Store) []byte {
	t.Helper()
	stored, err := store.Setting(t.Context(), rowmac.DataKeySetting)
	must(t, err)
	return stored
}

func putSetting(t *testing.T, store *sqlstore.Store, stored []byte) {
	t.Helper()
	must(t, store.Update(t.Context(), func(tx *sqlstore.Tx) error { return tx.PutSetting(t.Context(), rowmac.DataKeySetting, stored) }))
}

// retire retires the replaced data key, like a process that found no keys wrapped under it.
func retire(t *testing.T, c *keyring.Keyring, store *sqlstore.Store) {
	t.Helper()
	old, _ := c.Retiring()
	must(t, store.Update(t.Context(), func(tx *sqlstore.Tx) error { return c.Retire(t.Context(), old, tx.Setting, tx.PutSetting) }))
	_, err := c.Reload(t.Context())
	must(t, err)
}

// TestRotate checks that keys which were wrapped before a rotation can be unwrapped until their data key is retired,
// even on a replica that has not read the new ring yet.
func TestRotate(t *testing.T) {
	store := openStore(t)
	one, other := start(t, store, kekURL(secret)), start(t, store, kekURL(secret))
	before := wrap(t, one)

	made, err := one.Rotate(t.Context())
	must(t, err)
	after := wrap(t, one)
	if !bytes.HasPrefix(after, keyring.Prefix(made.ID)) || bytes.HasPrefix(before, keyring.Prefix(made.ID)) {
		t.Errorf("%x and %x are not under two data keys", before[:9], after[:9])
	}
	opens(t, "before", one, before)
	opens(t, "after", one, after)
	opens(t, "another replica", other, after)
	if _, err := one.Rotate(t.Context()); !errors.Is(err, keyring.ErrRewrapping) {
		t.Errorf("while one is retiring: %v", err)
	}

	anew, changed, err := one.Rewrap(keyID, 1, before)
	if err != nil || !changed {
		t.Fatalf("wrapped anew: %t, %v", changed, err)
	}
	if _, changed, err := one.Rewrap(keyID, 1, anew); err != nil || changed {
		t.Errorf("once more: %t, %v", changed, err)
	}
	retire(t, one, store)
	opens(t, "anew", one, anew)
	if _, err := one.Unwrap(keyID, 1, before); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("under the retired data key: %v", err)
	}
	states := []keyserver.DataKeyState{}
	for _, k := range start(t, store, kekURL(secret)).DataKeys() {
		states = append(states, k.State)
	}
	if len(states) != 2 || states[0] != keyserver.DataKeyRetired || states[1] != keyserver.DataKeyActive {
		t.Errorf("the data keys are %v", states)
	}
	if bytes.Count(setting(t, store), []byte(`"wrapped"`)) != 1 {
		t.Error("the retired data key is still there")
	}
}

// TestDataKeyIsBound checks that a key which is wrapped under one data key cannot be unwrapped under another.
func TestDataKeyIsBound(t *testing.T) {
	store := openStore(t)
	c := start(t, store, kekURL(secret))
	before := wrap(t, c)
	made, err := c.Rotate(t.Context())
	must(t, err)
	copy(before, keyring.Prefix(made.ID))
	if _, err := c.Unwrap(keyID, 1, before); !errors.Is(err, keyring.ErrDamaged) {
		t.Errorf("got %v", err)
	}
}

// TestManyRotations checks that the size of the ring is limited.
func TestManyRotations(t *testing.T) {
	store := openStore(t)
	c := start(t, store, kekURL(secret))
	for range 40 {
		_, err := c.Rotate(t.Context())
		must(t, err)
		retire(t, c, store)
	}
	if n := len(c.DataKeys()); n != 33 {
		t.Errorf("%d data keys are remembered", n)
	}
	if n := len(setting(t, store)); n > 8<<10 {
		t.Errorf("the setting has %d bytes", n)
	}
}

// alone returns the setting of a database that is older than rings.
func alone(t *testing.T, kek []byte) []byte {
	t.Helper()
	keeper := localsecrets.NewKeeper([32]byte(kek))
	defer keeper.Close()
	wrapped, err := keeper.Encrypt(t.Context(), append([]byte{1}, strings.Repeat("k", 32)...))
	must(t, err)
	return wrapped
}

// TestOneDataKeyAlone checks that a database that is older than rings opens with all its keys.
func TestOneDataKeyAlone(t *testing.T) {
	store := openStore(t)
	putSetting(t, store, alone(t, secret))
	c := start(t, store, kekURL(secret))
	before := wrap(t, c)
	if before[0] != 1 {
		t.Errorf("version %d, which a replica of before does not open", before[0])
	}
	if !bytes.HasPrefix(setting(t, store), []byte(`{"version":2`)) {
		t.Error("there is no ring")
	}
	if _, err := c.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	opens(t, "before", c, before)
	opens(t, "before, elsewhere", start(t, store, kekURL(secret)), before)
	anew, _, err := c.Rewrap(keyID, 1, before)
	must(t, err)
	retire(t, c, store)
	opens(t, "anew", start(t, store, kekURL(secret)), anew)
}

// TestRingRefused checks that data keys are refused if no key server has written them together.
func TestRingRefused(t *testing.T) {
	store := openStore(t)
	c := start(t, store, kekURL(secret))
	first := setting(t, store)
	_, err := c.Rotate(t.Context())
	must(t, err)
	second := setting(t, store)
	type ring struct {
		Version    int              `json:"version"`
		Generation uint64           `json:"generation"`
		Keys       []map[string]any `json:"keys"`
		MAC        []byte           `json:"mac"`
	}
	changed := func(change func(r *ring)) []byte {
		var r ring
		must(t, json.Unmarshal(second, &r))
		change(&r)
		text, err := json.Marshal(r)
		must(t, err)
		return text
	}
	for reason, stored := range map[string][]byte{
		"a later generation":   bytes.Replace(second, []byte(`"generation":1`), []byte(`"generation":9`), 1),
		"a key less":           changed(func(r *ring) { r.Keys = r.Keys[1:] }),
		"the former is active": bytes.Replace(bytes.Replace(second, []byte(`"active"`), []byte(`"x"`), 1), []byte(`"retiring"`), []byte(`"active"`), 1),
		"two are active":       bytes.Replace(second, []byte(`"retiring"`), []byte(`"active"`), 1),
		"none is":              bytes.Replace(second, []byte(`"active"`), []byte(`"retiring"`), 1),
		"no MAC":               changed(func(r *ring) { r.MAC = nil }),
		"something besides":    append(bytes.Clone(second), ' '),
		"no JSON":              []byte(`{"version":2`),
	} {
		putSetting(t, store, stored)
		if _, err := keyring.New(t.Context(), open(t, kekURL(secret)), store); err == nil {
			t.Errorf("%s: starts", reason)
		}
		if _, err := c.Reload(t.Context()); fault.CodeOf(err) != fault.StoreTampered {
			t.Errorf("%s: while it runs: %v", reason, err)
		}
	}
	putSetting(t, store, first)
	if _, err := c.Reload(t.Context()); fault.CodeOf(err) != fault.StoreTampered {
		t.Errorf("an older ring while it runs: %v", err)
	}
	putSetting(t, store, second)
	if _, err := c.Reload(t.Context()); err != nil {
		t.Errorf("put back: %v", err)
	}
}

// TestKEKChanges checks that the new key-encryption key opens all data keys of the previous one, and that the data keys
// do not change.
func TestKEKChanges(t *testing.T) {
	store := openStore(t)
	old := start(t, store, kekURL(secret))
	before := wrap(t, old)
	_, err := old.Rotate(t.Context())
	must(t, err)
	after := wrap(t, old)

	other := bytes.Repeat([]byte{7}, 32)
	stored := setting(t, store)
	for reason, keks := range map[string][2][]byte{
		"a wrong previous": {other, bytes.Repeat([]byte{9}, 32)}, "the same twice": {other, other},
	} {
		_, err := keyring.Start(t.Context(), open(t, kekURL(keks[0])), store, keyring.Options{Previous: open(t, kekURL(keks[1]))})
		if !errors.Is(err, keyring.ErrWrongKeys) || !bytes.Equal(stored, setting(t, store)) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if _, err := keyring.New(t.Context(), open(t, kekURL(other)), store); !errors.Is(err, keyring.ErrWrongKey) || !strings.Contains(err.Error(), "--kek-previous") {
		t.Errorf("the new one alone: %v", err)
	}

	for range 2 { // a repeated start with the same options changes nothing
		c, err := keyring.Start(t.Context(), open(t, kekURL(other)), store, keyring.Options{Previous: open(t, kekURL(secret))})
		must(t, err)
		opens(t, "before", c, before)
		opens(t, "after", c, after)
		if needed := c.KEK(t.Context()).PreviousNeeded; needed == nil || *needed {
			t.Error("it is said that the previous one is still needed")
		}
	}
	c := start(t, store, kekURL(other))
	opens(t, "with the new one alone", c, before)
	if _, err := keyring.New(t.Context(), open(t, kekURL(secret)), store); !errors.Is(err, keyring.ErrWrongKey) {
		t.Errorf("the previous one alone: %v", err)
	}
	// A running replica that has only the previous key-encryption key keeps its data keys in memory.
	if _, err := old.Reload(t.Context()); err != nil {
		t.Errorf("a replica of before: %v", err)
	}
	if c.KEK(t.Context()).Fingerprint == old.KEK(t.Context()).Fingerprint || c.KEK(t.Context()).PreviousNeeded != nil {
		t.Errorf("got %+v", c.KEK(t.Context()))
	}
}

// TestKEKChangesElsewhere checks that information about key-encryption keys is computed from the stored data keys, even
// if another replica has wrapped them.
func TestKEKChangesElsewhere(t *testing.T) {
	store, other := openStore(t), bytes.Repeat([]byte{7}, 32)
	with := func(kek, previous []byte) *keyring.Keyring {
		c, err := keyring.Start(t.Context(), open(t, kekURL(kek)), store, keyring.Options{Previous: open(t, kekURL(previous))})
		must(t, err)
		return c
	}
	answers := func(c *keyring.Keyring, warns bool) {
		t.Helper()
		_, err := c.Reload(t.Context())
		must(t, err)
		if warning, err := c.CheckKEK(t.Context()); err != nil || warns != (warning != "") {
			t.Errorf("%q, %v", warning, err)
		}
	}
	alone := start(t, store, kekURL(secret))
	both := with(other, secret)
	answers(alone, true)
	answers(both, false)
	stored := setting(t, store)
	if _, err := alone.Rotate(t.Context()); fault.CodeOf(err) != fault.NotReady || !strings.Contains(err.Error(), "does not open the data keys") || !bytes.Equal(stored, setting(t, store)) {
		t.Errorf("a data key by the former key-encryption key: %v", err)
	}
	if *both.KEK(t.Context()).PreviousNeeded {
		t.Error("it is said that the previous one is needed")
	}

	back := with(secret, other)
	answers(alone, false)
	answers(both, false)
	if !*both.KEK(t.Context()).PreviousNeeded || *back.KEK(t.Context()).PreviousNeeded {
		t.Error("what is said of the previous one is not what is stored")
	}
	if _, err := back.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers(both, false)
	stored = setting(t, store)
	must(t, both.RewrapFromPrevious(t.Context()))
	if !bytes.Equal(stored, setting(t, store)) {
		t.Error("two replicas wrap by turns")
	}
}

// TestLeftBehind checks that a replica that cannot open the newest data key reports this until it can.
func TestLeftBehind(t *testing.T) {
	store, other := openStore(t), bytes.Repeat([]byte{7}, 32)
	alone := start(t, store, kekURL(secret))
	c, err := keyring.Start(t.Context(), open(t, kekURL(other)), store, keyring.Options{Previous: open(t, kekURL(secret))})
	must(t, err)
	stored := setting(t, store)
	_, err = c.Rotate(t.Context())
	must(t, err)
	if _, err := alone.Reload(t.Context()); fault.CodeOf(err) != fault.NotCurrent || !errors.Is(alone.NewestKeyError(), err) || !alone.Doubted() {
		t.Errorf("%v, and it says %v", err, alone.NewestKeyError())
	}
	putSetting(t, store, stored)
	_, err = alone.Reload(t.Context())
	must(t, err)
	if alone.NewestKeyError() != nil || c.NewestKeyError() != nil || alone.Doubted() {
		t.Errorf("%v, %v", alone.NewestKeyError(), c.NewestKeyError())
	}
}

// TestFingerprint checks that a key cannot be tested against the fingerprint without the secret of the database.
func TestFingerprint(t *testing.T) {
	one, other := openStore(t), openStore(t)
	a, b := start(t, one, kekURL(secret)).KEK(t.Context()), start(t, other, kekURL(secret)).KEK(t.Context())
	if a.Fingerprint == b.Fingerprint || len(a.Fingerprint) != 16 || a.Scheme != "base64key" {
		t.Errorf("%+v and %+v", a, b)
	}
	c := start(t, one, kekURL(secret))
	_, err := c.Rotate(t.Context())
	must(t, err)
	retire(t, c, one)
	if again := start(t, one, kekURL(secret)).KEK(t.Context()); again != a {
		t.Errorf("another data key: %+v", again)
	}
}

// TestRowsOfTwoDataKeys checks that row MACs of both data keys are accepted until one is retired.
func TestRowsOfTwoDataKeys(t *testing.T) {
	store := openStore(t)
	one, other := start(t, store, kekURL(secret)), start(t, store, kekURL(secret))
	row := rowmac.Setting("name", []byte("value"))
	before := one.RowKey().Sum(row)
	_, err := one.Rotate(t.Context())
	must(t, err)
	after := one.RowKey().Sum(row)
	if bytes.Equal(before, after) || one.RowKey().MadeByNewest(row, before) || !one.RowKey().MadeByNewest(row, after) {
		t.Error("the new data key makes no MACs of its own")
	}
	if !one.RowKey().Matches(row, before) || !other.RowKey().Matches(row, after) {
		t.Error("a row of either is refused")
	}
	retire(t, one, store)
	if one.RowKey().Matches(row, before) {
		t.Error("a row of the retired data key passes")
	}
	if !one.RowKey().Matches(row, after) {
		t.Error("a row of the active one is refused")
	}
}
