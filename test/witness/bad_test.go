package witness

import (
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// cosigner is a witness that cosigns every checkpoint.
type cosigner struct {
	note.Signer
	key string
}

func newCosigner(t testing.TB) cosigner {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "bad.example/witness")
	rig.Must(t, err)
	public, err = cosignature.VKeyToCosignatureV1(public)
	rig.Must(t, err)
	signer, err := cosignature.NewSignerForCosignatureV1(private)
	rig.Must(t, err)
	return cosigner{signer, public}
}

// lines returns the cosignature of a checkpoint, or of the text that change returns.
func (c cosigner) lines(t testing.TB, checkpoint []byte, change func(text string) string) string {
	text, _, _ := strings.Cut(string(checkpoint), "\n\n")
	signed, err := note.Sign(&note.Note{Text: change(text + "\n")}, c)
	if err != nil {
		t.Error(err)
	}
	_, lines, _ := strings.Cut(string(signed), "\n\n")
	return lines
}

func same(text string) string { return text }

func keyOf(at string) string {
	_, key, _ := strings.Cut(at, "=")
	return key
}

// TestBadWitnesses checks that the server rejects invalid responses of a witness, and that they delay nothing:
// operations and checkpoints continue, and rows have receipts. At the end it accepts a valid cosignature.
func TestBadWitnesses(t *testing.T) {
	key, other := newCosigner(t), newCosigner(t)
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request, checkpoint []byte){
		"never": func(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() },
		"after many intervals": func(w http.ResponseWriter, r *http.Request, checkpoint []byte) {
			select {
			case <-time.After(5 * interval):
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, other.lines(t, checkpoint, same))
		},
		"garbage": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			_, _ = io.WriteString(w, "\x00\xffgarbage\n\n\n")
		},
		"nothing": func(http.ResponseWriter, *http.Request, []byte) {},
		"another key": func(w http.ResponseWriter, _ *http.Request, checkpoint []byte) {
			_, _ = io.WriteString(w, other.lines(t, checkpoint, same))
		},
		"another checkpoint": func(w http.ResponseWriter, _ *http.Request, checkpoint []byte) {
			_, _ = io.WriteString(w, key.lines(t, checkpoint, func(text string) string { return strings.Replace(text, "\n", "\n1", 1) }))
		},
		"too much": func(w http.ResponseWriter, _ *http.Request, checkpoint []byte) {
			_, _ = io.WriteString(w, key.lines(t, checkpoint, same)+strings.Repeat("— bad.example/witness AAAAAAAA\n", 1<<12))
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request, _ []byte) {
			http.Redirect(w, r, "/good", http.StatusTemporaryRedirect)
		},
		"a size beyond the log": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", "text/x.tlog.size")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, "1000000\n")
		},
		"a size that is none": func(w http.ResponseWriter, _ *http.Request, _ []byte) {
			w.Header().Set("Content-Type", "text/x.tlog.size")
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, "-1\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bad atomic.Bool
			var asked atomic.Int32
			bad.Store(true)
			at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return
				}
				request, err := witness.ParseRequest(body)
				if err != nil {
					t.Error(err)
				}
				asked.Add(1)
				if bad.Load() && r.URL.Path == "/add-checkpoint" {
					answer(w, r, request.Checkpoint)
					return
				}
				_, _ = io.WriteString(w, key.lines(t, request.Checkpoint, same))
			}))
			t.Cleanup(at.Close)
			log := open(t, func(c *server.Config) { c.WitnessQuorum, c.Witnesses = 1, []string{at.URL + "=" + key.key} })
			t.Cleanup(func() { log.Stop(t) }) // no request to the witness while it stops
			db := log.database(t)
			until(t, "the witness is asked", func() bool { return asked.Load() > 0 })
			for range 3 {
				before, _ := head(t, db, "newest")
				log.write(t, 3)
				until(t, "a newer checkpoint", func() bool { size, _ := head(t, db, "newest"); return size > before })
				size, _ := head(t, db, "newest")
				if _, err := log.Admin(t).GetAuditReceipt(t.Context(), schema.ByRow{Seq: schema.RowNumber(size)}); err != nil {
					t.Error(err)
				}
			}
			if size, _ := head(t, db, "cosigned"); size != 0 {
				t.Errorf("%d rows are taken for cosigned", size)
			}
			_, newest := head(t, db, "newest")
			if lines := strings.Count(string(newest), "\n— "); lines != 1 {
				t.Errorf("the checkpoint has %d signatures: %s", lines, newest)
			}
			bad.Store(false)
			until(t, "a good cosignature is taken", func() bool {
				size, checkpoint := head(t, db, "cosigned")
				return size > 0 && signed(t, checkpoint, key.key)
			})
		})
	}
}
