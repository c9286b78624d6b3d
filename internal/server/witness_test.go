package server

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
)

// TestWitnessesThatAreRefused checks invalid flags of witnesses, which are rejected without a connection.
func TestWitnessesThatAreRefused(t *testing.T) {
	pair, err := witness.NewKey(rand.Reader, witness.Name("other", 2))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := witness.ReadKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	key := "=" + signer.Key
	for reason, tc := range map[string]struct {
		w    Witnessing
		want string
	}{
		"somebody on the way answers":     {Witnessing{Witnesses: []string{"http://witness.example/hunter2" + key}}, "http://witness.example must be an https URL"},
		"a name that begins as loopback":  {Witnessing{Witnesses: []string{"http://127.0.0.1.example" + key}}, "must be an https URL"},
		"two by one name":                 {Witnessing{Witnesses: []string{"https://a.example" + key, "https://b.example" + key}}, "give each once"},
		"no key":                          {Witnessing{Witnesses: []string{"https://witness.example"}}, "URL=VKEY"},
		"a password":                      {Witnessing{Witnesses: []string{"https://a:b@witness.example" + key}}, "without user"},
		"fewer than none":                 {Witnessing{WitnessQuorum: -1}, "--witness-quorum is -1"},
		"a client that is none":           {Witnessing{WitnessClients: []string{"x"}}, "--witness-client"},
		"https":                           {Witnessing{Witnesses: []string{"https://witness.example" + key}}, ""},
		"plain http on the same machine":  {Witnessing{Witnesses: []string{"http://localhost:1" + key}}, ""},
		"plain http on the same machine6": {Witnessing{Witnesses: []string{"http://[::1]:1" + key}}, ""},
	} {
		err := tc.w.validateWitnesses()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", reason, err, tc.want)
		}
	}
}
