package witness_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/transparency-dev/formats/log"
	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

type memory struct {
	mu    sync.Mutex
	logs  map[string]keyserver.WitnessedLog
	peers []keyserver.TrustedServer
}

func (m *memory) WitnessedLogs(context.Context) ([]keyserver.WitnessedLog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.logs)), nil
}

func (m *memory) TrustedServers(context.Context) ([]keyserver.TrustedServer, error) {
	return m.peers, nil
}

func (m *memory) UpdateWitnessedLog(_ context.Context, origin string, change func(*keyserver.WitnessedLog) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.logs[origin]
	if !ok {
		l = keyserver.WitnessedLog{Origin: origin}
	}
	if err := change(&l); err != nil {
		return err
	}
	m.logs[origin] = l
	return nil
}

// grown is a log of another key server, built with the library.
type grown struct {
	signer note.Signer
	key    string
	hashes []tlog.Hash
	size   int64
}

func newLog(t *testing.T, origin string) *grown {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	return &grown{signer: signer, key: public}
}

func (g *grown) read(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		out[i] = g.hashes[index]
	}
	return out, nil
}

func (g *grown) add(t *testing.T, rows ...string) *grown {
	t.Helper()
	for _, row := range rows {
		more, err := tlog.StoredHashes(g.size, []byte(row), tlog.HashReaderFunc(g.read))
		if err != nil {
			t.Fatal(err)
		}
		g.hashes = append(g.hashes, more...)
		g.size++
	}
	return g
}

func (g *grown) request(t *testing.T, old int64) witness.Request {
	t.Helper()
	r := witness.Request{Old: old}
	root, err := tlog.TreeHash(g.size, tlog.HashReaderFunc(g.read))
	if err != nil {
		t.Fatal(err)
	}
	if old > 0 && old <= g.size {
		if r.Proof, err = tlog.ProveTree(g.size, old, tlog.HashReaderFunc(g.read)); err != nil {
			t.Fatal(err)
		}
	}
	text := log.Checkpoint{Origin: g.signer.Name(), Size: uint64(g.size), Hash: root[:]}.Marshal()
	if r.Checkpoint, err = note.Sign(&note.Note{Text: string(text)}, g.signer); err != nil {
		t.Fatal(err)
	}
	return r
}

type world struct {
	*witness.Witness
	store  *memory
	alarms []keyserver.WitnessedLog
}

const peerSystem keyserver.SystemID = 9

// newWorld returns a witness for foreign, which belongs to no peer, and for the log of a peer.
func newWorld(t *testing.T, foreign, peer *grown) *world {
	t.Helper()
	pair, err := witness.NewKey(rand.Reader, witness.Name("keys", 7))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := witness.ReadKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{store: &memory{
		logs: map[string]keyserver.WitnessedLog{peer.signer.Name(): {
			Origin: peer.signer.Name(), Key: peer.key, System: peerSystem, WitnessKey: "any",
		}},
		peers: []keyserver.TrustedServer{{System: peerSystem, Witness: true}},
	}}
	w.Witness, err = witness.New(witness.Config{
		Store: w.store, Signer: signer, Clients: []string{foreign.key}, Clock: time.Now,
		Alarm: func(l keyserver.WitnessedLog) { w.alarms = append(w.alarms, l) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWitness checks which requests are refused, which conflicts are recorded, and which checkpoints are cosigned. Each
// log has five rows; the witness has cosigned three of them.
func TestWitness(t *testing.T) {
	for name, c := range map[string]struct {
		tamper   func(t *testing.T, g *grown) witness.Request
		code     fault.Code
		stale    bool
		stranger keyserver.LogConflict // the expected conflict if the sender is Anonymous
		peer     keyserver.LogConflict // the expected conflict if the sender is the peer
	}{
		"another key": {tamper: func(t *testing.T, g *grown) witness.Request {
			g.signer = newLog(t, g.signer.Name()).signer
			return g.request(t, 3)
		}, code: fault.CheckpointUnsigned, peer: keyserver.LogForged},
		"no signature": {tamper: func(t *testing.T, g *grown) witness.Request {
			r := g.request(t, 3)
			r.Checkpoint = r.Checkpoint[:strings.Index(string(r.Checkpoint), "\n\n")+2]
			return r
		}, code: fault.CheckpointUnsigned, peer: keyserver.LogForged},
		"the same size, another root": {tamper: func(t *testing.T, g *grown) witness.Request {
			*g = grown{signer: g.signer, key: g.key}
			return g.add(t, "1", "2", "other").request(t, 3)
		}, code: fault.CheckpointInconsistent, stranger: keyserver.LogForked, peer: keyserver.LogForked},
		"another branch": {tamper: func(t *testing.T, g *grown) witness.Request {
			*g = grown{signer: g.signer, key: g.key}
			return g.add(t, "1", "2", "other", "4", "5").request(t, 3)
		}, code: fault.CheckpointInconsistent, peer: keyserver.LogForked},
		"no proof": {tamper: func(t *testing.T, g *grown) witness.Request {
			r := g.request(t, 3)
			r.Proof = nil
			return r
		}, code: fault.CheckpointInconsistent, peer: keyserver.LogForked},
		"put back": {tamper: func(t *testing.T, g *grown) witness.Request {
			*g = grown{signer: g.signer, key: g.key}
			return g.add(t, "1", "2").request(t, 3)
		}, code: fault.BadRequest, peer: keyserver.LogRolledBack},
		"an old checkpoint":     {tamper: func(t *testing.T, g *grown) witness.Request { return g.request(t, 1) }, stale: true},
		"from the beginning":    {tamper: func(t *testing.T, g *grown) witness.Request { return g.request(t, 0) }, stale: true},
		"beyond the checkpoint": {tamper: func(t *testing.T, g *grown) witness.Request { return g.request(t, 6) }, code: fault.BadRequest},
		"a log that nobody knows": {tamper: func(t *testing.T, _ *grown) witness.Request {
			return newLog(t, "stranger").add(t, "1").request(t, 0)
		}, code: fault.NotFound},
		"continued": {tamper: func(t *testing.T, g *grown) witness.Request { return g.request(t, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, from := range []keyserver.SystemID{witness.Anonymous, peerSystem} {
				foreign, peer := newLog(t, "elsewhere/log"), newLog(t, "peer/audit/9")
				w := newWorld(t, foreign, peer)
				g, want := foreign, c.stranger
				if from == peerSystem {
					g, want = peer, c.peer
				}
				g.add(t, "1", "2", "3")
				if _, err := w.AddCheckpoint(t.Context(), from, g.request(t, 0)); err != nil {
					t.Fatal(err)
				}
				r := c.tamper(t, g.add(t, "4", "5"))
				parsed, err := witness.ParseRequest(r.Marshal())
				if err != nil {
					t.Fatal(err)
				}
				lines, err := w.AddCheckpoint(t.Context(), from, parsed)
				var stale keyserver.StaleCheckpointError
				switch {
				case errors.As(err, &stale) != c.stale || c.stale && stale.Size != 3:
					t.Errorf("from %d: %v", from, err)
				case !c.stale && fault.CodeOf(err) != c.code:
					t.Errorf("from %d: %v instead of %q", from, err, c.code)
				}
				var found keyserver.LogConflict
				for _, a := range w.alarms {
					found = a.Conflict
				}
				seen := w.store.logs[g.signer.Name()]
				if found != want || seen.Conflict != want {
					t.Errorf("from %d: told of %q, remembered %q, instead of %q", from, found, seen.Conflict, want)
				}
				if err != nil {
					if seen.Size != 3 || len(lines) > 0 {
						t.Errorf("from %d: refused, and %d rows are taken for cosigned", from, seen.Size)
					}
					continue
				}
				v, err := cosignature.NewVerifierForCosignatureV1(w.Signer.Key)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := note.Open(append(r.Checkpoint, lines...), note.VerifierList(v)); err != nil || seen.Size != 5 {
					t.Errorf("from %d: %v, %d rows", from, err, seen.Size)
				}
			}
		})
	}
}

// TestCosignatureByHand verifies a cosignature without a library, as described in docs/audit.md.
func TestCosignatureByHand(t *testing.T) {
	foreign := newLog(t, "elsewhere/log").add(t, "1", "2")
	w := newWorld(t, foreign, newLog(t, "peer/audit/9"))
	r := foreign.request(t, 0)
	line, err := w.AddCheckpoint(t.Context(), witness.Anonymous, r)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(w.Signer.Key, "+", 3)
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) != 33 || key[0] != 4 {
		t.Fatalf("%v: the key is %x", err, key)
	}
	encoded, found := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "— "+parts[0]+" ")
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !found || len(signature) != 76 || hex.EncodeToString(signature[:4]) != parts[1] {
		t.Fatalf("%v: %s", err, line)
	}
	lines, _, _ := strings.Cut(string(r.Checkpoint), "\n\n")
	text := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", binary.BigEndian.Uint64(signature[4:12]), lines)
	if !ed25519.Verify(key[1:], []byte(text), signature[12:]) {
		t.Error("the signature is not good")
	}
}

// TestOnePeersLogIsNotAnothers checks that a peer can send only checkpoints of its log.
func TestOnePeersLogIsNotAnothers(t *testing.T) {
	peer := newLog(t, "peer/audit/9")
	w := newWorld(t, newLog(t, "elsewhere/log"), peer)
	if _, err := w.AddCheckpoint(t.Context(), peerSystem+1, peer.add(t, "1").request(t, 0)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another peer: %v", err)
	}
	w.store.peers[0].Witness = false
	if _, err := w.AddCheckpoint(t.Context(), peerSystem, peer.request(t, 0)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a peer that is not witnessed: %v", err)
	}
}

func TestMalformedRequests(t *testing.T) {
	hash := tlog.Hash{}.String()
	for _, body := range []string{
		"", "old 1", "old 1\n\n", "old -1\n\na\n\n", "old 01\n\na\n\n", "old +1\n\na\n\n", "size 1\n\na\n\n", "old 99999999999999999999\n\na\n\n",
		"old 1\nno hash\n\na\n\n", "old 1\n" + hash + "=\n\na\n\n", "old 1\n" + strings.Repeat(hash+"\n", 64) + "\na\n\n", "old 1\n\n" + strings.Repeat("a", 9<<10) + "\n\n",
	} {
		if _, err := witness.ParseRequest([]byte(body)); fault.CodeOf(err) != fault.BadRequest {
			t.Errorf("%.40q: %v", body, err)
		}
	}
}
