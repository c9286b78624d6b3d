package client_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// TestAnswersThatAreNoJSON checks that a response with the wrong media type, such as a
// proxy's page, is refused.
func TestAnswersThatAreNoJSON(t *testing.T) {
	s := newStub(t)
	media := ""
	s.on("/", func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("Content-Type", media)
		_, _ = io.WriteString(w, "{}\n")
	})
	c := s.client(t)
	for _, media = range []string{"text/html; charset=utf-8", "application/json", "", "application/octet-stream"} {
		if _, err := c.GetAuditCheckpoint(t.Context()); err == nil || client.IsUnavailable(err) {
			t.Errorf("%q is taken for a checkpoint: %v", media, err)
		}
	}
	for _, media = range []string{"text/plain; charset=utf-8", "text/plain;charset=UTF-8"} {
		if got, err := c.GetAuditReceipt(t.Context(), schema.ByRow{Seq: 1}); err != nil || string(got) != "{}\n" {
			t.Errorf("%q: %q, %v", media, got, err)
		}
	}
	media = "application/octet-stream"
	in := schema.AuditHashesRequest{Tile: schema.TilePlace{Index: 1067, Width: 8}}
	if got, err := c.GetAuditHashes(t.Context(), in); err != nil || string(got) != "{}\n" {
		t.Errorf("%q, %v", got, err)
	}
	in.Tile.Width = 0
	if _, err := c.GetAuditHashes(t.Context(), in); !client.IsCode(err, "BAD_REQUEST") {
		t.Errorf("a tile of no hashes is asked for: %v", err)
	}
}
