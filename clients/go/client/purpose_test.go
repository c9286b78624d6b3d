package client_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
)

func TestFor(t *testing.T) {
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("X-Keyserver-For"))
		_, _ = w.Write([]byte(`{"status":"ok"}`))
	}))
	defer s.Close()
	c, err := client.New(client.Options{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, purpose := range []string{"", "cluster/ns/Role/a", strings.Repeat("ü", 300)} {
		ctx := t.Context()
		if purpose != "" {
			ctx = client.For(ctx, purpose)
		}
		if _, err := c.GetHealth(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(sent) != 3 || sent[0] != "" || sent[1] != "cluster/ns/Role/a" || sent[2] != strings.Repeat("ü", 256) {
		t.Errorf("sent %q", sent)
	}
}
