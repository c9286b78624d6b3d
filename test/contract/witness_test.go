package contract

import (
	"crypto/rand"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// addCheckpoint is neither in the table of routes nor in the OpenAPI document.
const addCheckpoint = "/api/witness/add-checkpoint"

// foreignLog is the log of another operator. Its leaves are texts.
type foreignLog struct {
	signer note.Signer
	key    string
	hashes []tlog.Hash
	size   int64
}

func newForeignLog(t testing.TB, origin string) *foreignLog {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, origin)
	rig.Must(t, err)
	signer, err := note.NewSigner(private)
	rig.Must(t, err)
	return &foreignLog{signer: signer, key: public}
}

func (f *foreignLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		out[i] = f.hashes[index]
	}
	return out, nil
}

// with returns the log with more leaves.
func (f *foreignLog) with(t testing.TB, leaves ...string) *foreignLog {
	t.Helper()
	out := *f
	out.hashes = slices.Clone(f.hashes)
	for _, leaf := range leaves {
		more, err := tlog.StoredHashes(out.size, []byte(leaf), &out)
		rig.Must(t, err)
		out.hashes = append(out.hashes, more...)
		out.size++
	}
	return &out
}

// request returns a cosignature request to a witness that has already cosigned the first old rows.
func (f *foreignLog) request(t testing.TB, old int64) witness.Request {
	t.Helper()
	root, err := tlog.TreeHash(f.size, f)
	rig.Must(t, err)
	text := log.Checkpoint{Origin: f.signer.Name(), Size: uint64(f.size), Hash: root[:]}.Marshal()
	r := witness.Request{Old: old}
	r.Checkpoint, err = note.Sign(&note.Note{Text: string(text)}, f.signer)
	rig.Must(t, err)
	if old > 0 && old < f.size {
		r.Proof, err = tlog.ProveTree(f.size, old, f)
		rig.Must(t, err)
	}
	return r
}

// TestAddCheckpoint checks contract 18.12, without a session. Refused requests change nothing: at the end the
// log is cosigned as if they had not been sent.
func TestAddCheckpoint(t *testing.T) {
	empty := newForeignLog(t, "elsewhere.example/log")
	first := empty.with(t, "1", "2", "3")
	grown := first.with(t, "4", "5")
	ownEmbedded(t, func(t *testing.T, s *subject) {
		witnessKey := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/witness", nil).Text(t, "key")
		verifier, err := cosignature.NewVerifierForCosignatureV1(witnessKey)
		rig.Must(t, err)
		cosigned := func(r witness.Request) {
			t.Helper()
			a := s.OK(t, "", "POST", addCheckpoint, string(r.Marshal()))
			if _, err := note.Open(append(slices.Clone(r.Checkpoint), a.Raw...), note.VerifierList(verifier)); err != nil {
				t.Errorf("%v: %s", err, a.Raw)
			}
		}
		cosigned(first.request(t, 0))

		forger := *grown
		forger.signer = newForeignLog(t, empty.signer.Name()).signer
		unproven := grown.request(t, 3)
		unproven.Proof = nil
		for name, c := range map[string]struct {
			body   string
			status int
			code   string
		}{
			"NoRequest":         {"{}", http.StatusBadRequest, "BAD_REQUEST"},
			"OldBeyond":         {string(first.request(t, 4).Marshal()), http.StatusBadRequest, "BAD_REQUEST"},
			"TooLong":           {strings.Repeat("a", witness.MaxRequest+1), http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE"},
			"AnotherKey":        {string(forger.request(t, 3).Marshal()), http.StatusForbidden, "CHECKPOINT_UNSIGNED"},
			"AnotherBranch":     {string(empty.with(t, "1", "2", "other", "4").request(t, 3).Marshal()), http.StatusUnprocessableEntity, "CHECKPOINT_INCONSISTENT"},
			"WithoutProof":      {string(unproven.Marshal()), http.StatusUnprocessableEntity, "CHECKPOINT_INCONSISTENT"},
			"ALogNobodyNamed":   {string(newForeignLog(t, "stranger.example/log").with(t, "1").request(t, 0).Marshal()), http.StatusNotFound, "NOT_FOUND"},
			"ItsOwnLogNotAPeer": {"old 0\n\n" + string(s.OK(t, s.AsAdmin(t), "GET", "/api/audit/checkpoint", nil).Raw), http.StatusNotFound, "NOT_FOUND"},
		} {
			if a := s.Send(t, "", "POST", addCheckpoint, c.body); a.Status != c.status || a.Code() != c.code {
				t.Errorf("%s: got %d %s, want %d %s", name, a.Status, a.Raw, c.status, c.code)
			}
		}
		s.Refused(t, "", "GET", addCheckpoint, nil, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")

		resp, err := s.HTTP.Post(s.URL()+addCheckpoint, "text/plain; charset=utf-8", strings.NewReader(string(grown.request(t, 2).Marshal())))
		rig.Must(t, err)
		size, err := io.ReadAll(resp.Body)
		rig.Must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusConflict || resp.Header.Get("Content-Type") != "text/x.tlog.size" || string(size) != "3\n" {
			t.Errorf("an old size that is not what was cosigned: %s %q", resp.Status, size)
		}

		logs := func() rig.Object {
			t.Helper()
			list := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", "/api/witness", nil).List(t, "logs")
			if len(list) != 1 || list[0]["origin"] != empty.signer.Name() || list[0]["key"] != empty.key {
				t.Fatalf("the logs that are witnessed: %v", list)
			}
			return list[0]
		}
		if l := logs(); l["size"] != float64(3) || l["conflict"] != nil {
			t.Errorf("after refusals of what anybody can send: %v", l)
		}
		s.Refused(t, "", "POST", addCheckpoint, string(empty.with(t, "1", "2", "other").request(t, 3).Marshal()), http.StatusUnprocessableEntity, "CHECKPOINT_INCONSISTENT")
		if l := logs(); l["conflict"] != "logForked" || l["size"] != float64(3) {
			t.Errorf("after two roots of one size, both signed: %v", l)
		}
		cosigned(grown.request(t, 3))
	}, func(c *server.Config) { c.WitnessClients = []string{empty.key} })
}
