package keyring_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	_ "gocloud.dev/secrets/hashivault"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
)

// transit fakes the two calls of a Vault transit engine that a provider uses. It "encrypts" by adding a prefix, because
// the test is only about sending a data key to the service.
func transit(t *testing.T, sealed *atomic.Bool) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in map[string]string
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("X-Vault-Token") != "token" || sealed.Load() {
			http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
			return
		}
		out := map[string]string{}
		switch r.URL.Path {
		case "/v1/transit/encrypt/kek":
			out["ciphertext"] = "vault:v1:" + in["plaintext"]
		case "/v1/transit/decrypt/kek":
			out["plaintext"] = strings.TrimPrefix(in["ciphertext"], "vault:v1:")
		default:
			http.NotFound(w, r)
			return
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"data": out}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAServiceHoldsTheKeyEncryptionKey(t *testing.T) {
	var sealed atomic.Bool
	t.Setenv("VAULT_SERVER_URL", transit(t, &sealed).URL)
	t.Setenv("VAULT_SERVER_TOKEN", "token")
	store := openStore(t)
	const url = "hashivault://kek"

	sealed.Store(true)
	if _, err := keyring.New(t.Context(), open(t, url), store); err == nil || strings.Contains(err.Error(), "token") {
		t.Errorf("the service refuses: got %v", err)
	}
	sealed.Store(false)
	first, err := keyring.New(t.Context(), open(t, url), store)
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := first.Wrap(keyID, 1, secret)
	if err != nil {
		t.Fatal(err)
	}
	again, err := keyring.New(t.Context(), open(t, url), store)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := again.Unwrap(keyID, 1, wrapped); err != nil || string(plain) != string(secret) {
		t.Errorf("after a restart: %v", err)
	}
	sealed.Store(true)
	if _, err := keyring.New(t.Context(), open(t, url), store); err == nil {
		t.Error("a sealed service opened the data key")
	}
}
