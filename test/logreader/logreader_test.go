package logreader

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
)

// keyServer is a key server, with a session that may read its audit log.
type keyServer struct {
	*testing.T
	at      *testserver.Server
	wire    *http.Transport
	http    *http.Client
	session string
	lies    string // responses with this text in the path are corrupted

	verifier note.Verifier
}

// RoundTrip changes a byte of the response if the path contains lies.
func (k *keyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := k.wire.RoundTrip(r)
	if err == nil && k.lies != "" && strings.Contains(r.URL.Path, k.lies) {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		body[len(body)/2] ^= 1
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	return resp, err
}

func (k *keyServer) get(path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(k.Context(), http.MethodGet, k.at.URL()+"/api/audit/"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+k.session)
	resp, err := k.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", path, resp.StatusCode, body)
	}
	return body, err
}

// write adds n rows to the audit log.
func (k *keyServer) write(n int) {
	k.Helper()
	c := k.at.Client(k.T, testserver.AdminName, testserver.AdminPassword)
	var all errgroup.Group
	all.SetLimit(8)
	for range n {
		all.Go(func() error { _, err := c.ListRoles(k.Context()); return err })
	}
	if err := all.Wait(); err != nil {
		k.Fatal(err)
	}
}

// both runs a test against a key server on each database. Its audit log has more rows than two tiles hold.
func both(t *testing.T, test func(k *keyServer)) {
	for name, option := range map[string]func(*testing.T) testserver.Option{
		"SQLite": func(*testing.T) testserver.Option { return func(*server.Config) {} },
		"PostgreSQL": func(t *testing.T) testserver.Option {
			u := migrated.Database(t)
			return func(c *server.Config) { c.DatabaseURL = u }
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &keyServer{T: t, at: testserver.Start(t, option(t))}
			k.wire = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: k.at.Pool(t), MinVersion: tls.VersionTLS13}}
			defer k.wire.CloseIdleConnections()
			k.http = &http.Client{Transport: k}
			k.log()
			k.write(530)
			test(k)
		})
	}
}

// log logs in, and stores the public key of the log.
func (k *keyServer) log() {
	k.Helper()
	body := fmt.Sprintf(`{"method":"password","name":%q,"password":%q}`, testserver.AdminName, testserver.AdminPassword)
	r, err := http.NewRequestWithContext(k.Context(), http.MethodPost, k.at.URL()+"/api/sessions", strings.NewReader(body))
	if err != nil {
		k.Fatal(err)
	}
	resp, err := k.http.Do(r)
	if err != nil {
		k.Fatal(err)
	}
	defer resp.Body.Close()
	var opened struct{ SessionID string }
	if err := json.NewDecoder(resp.Body).Decode(&opened); err != nil {
		k.Fatal(err)
	}
	k.session = opened.SessionID
	var key struct{ Key string }
	text, err := k.get("key")
	if err == nil {
		err = json.Unmarshal(text, &key)
	}
	if err != nil {
		k.Fatal(err)
	}
	if k.verifier, err = note.NewVerifier(key.Key); err != nil {
		k.Fatal(err)
	}
}

// checkpoint reads a checkpoint as C2SP tlog-checkpoint specifies it.
func (k *keyServer) checkpoint() tlog.Tree {
	k.Helper()
	text, err := k.get("checkpoint")
	if err != nil {
		k.Fatal(err)
	}
	n, err := note.Open(text, note.VerifierList(k.verifier))
	if err != nil {
		k.Fatal(err)
	}
	lines := strings.Split(n.Text, "\n")
	size, err := strconv.ParseInt(lines[1], 10, 64)
	hash, err2 := base64.StdEncoding.DecodeString(lines[2])
	if err != nil || err2 != nil || lines[0] != k.verifier.Name() {
		k.Fatalf("%s: %v, %v", n.Text, err, err2)
	}
	return tlog.Tree{N: size, Hash: tlog.Hash(hash)}
}

// newest waits until the audit tree contains a row, by requesting its receipt, and reads the checkpoint.
func (k *keyServer) newest(row int64) tlog.Tree {
	k.Helper()
	if _, err := k.get(fmt.Sprintf("%d/receipt", row)); err != nil {
		k.Fatal(err)
	}
	return k.checkpoint()
}

// Height, ReadTiles and SaveTiles implement tlog.TileReader.
func (k *keyServer) Height() int { return 8 }

func (k *keyServer) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, t := range tiles {
		var err error
		if all[i], err = k.get(strings.Replace(t.Path(), "tile/8/", "tile/", 1)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (k *keyServer) SaveTiles([]tlog.Tile, [][]byte) {}

// entry returns the bytes of a row.
func (k *keyServer) entry(seq, size int64) []byte {
	k.Helper()
	t := tlog.Tile{H: 8, N: (seq - 1) / 256, W: int(min(size-(seq-1)/256*256, 256))}
	text, err := k.get(strings.Replace(t.Path(), "tile/8/0/", "tile/entries/", 1))
	if err != nil {
		k.Fatal(err)
	}
	var bundle api.EntryBundle
	if err := bundle.UnmarshalText(text); err != nil || len(bundle.Entries) != t.W {
		k.Fatalf("%s: %d entries, %v", t.Path(), len(bundle.Entries), err)
	}
	return bundle.Entries[(seq-1)%256]
}

// TestSumDB verifies the records and trees of a log by its tiles, which the root hash authenticates. Corrupted data is
// detected.
func TestSumDB(t *testing.T) {
	both(t, func(k *keyServer) {
		old := k.newest(500)
		k.write(300)
		now := k.newest(800)
		tiles := tlog.TileHashReader(now, k)
		for _, seq := range []int64{1, 256, 257, 512, 513, now.N} {
			p, err := tlog.ProveRecord(now.N, seq-1, tiles)
			if err != nil {
				t.Fatal(err)
			}
			entry := k.entry(seq, now.N)
			if err := tlog.CheckRecord(p, now.N, now.Hash, seq-1, tlog.RecordHash(entry)); err != nil {
				t.Errorf("row %d: %v", seq, err)
			}
			entry[40] ^= 1
			if tlog.CheckRecord(p, now.N, now.Hash, seq-1, tlog.RecordHash(entry)) == nil {
				t.Errorf("row %d is proven, though it was changed", seq)
			}
		}
		p, err := tlog.ProveTree(now.N, old.N, tiles)
		if err != nil {
			t.Fatal(err)
		}
		if err := tlog.CheckTree(p, now.N, now.Hash, old.N, old.Hash); err != nil || now.N <= old.N {
			t.Errorf("the tree of %d rows does not continue that of %d: %v", now.N, old.N, err)
		}
		for _, lie := range []string{"tile/0/001", "tile/1/000.p/"} {
			k.lies = lie
			if _, err := tlog.ProveRecord(now.N, 300, tiles); err == nil {
				t.Errorf("a lie about %s is not noticed", lie)
			}
		}
	})
}

// TestTessera has Tessera's client follow the log from one checkpoint to the next and prove rows.
// It detects a tile that differs from the signed one.
func TestTessera(t *testing.T) {
	both(t, func(k *keyServer) {
		ctx := t.Context()
		root, err := url.Parse(k.at.URL() + "/api/audit/")
		if err != nil {
			t.Fatal(err)
		}
		fetcher, err := client.NewHTTPFetcher(root, k.http)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := client.FetchCheckpoint(ctx, fetcher.ReadCheckpoint, k.verifier, k.verifier.Name()); err == nil {
			t.Error("a stranger without a session reads the checkpoint")
		}
		fetcher.SetAuthorizationHeader("Bearer " + k.session)
		k.newest(500)
		consensus := client.UnilateralConsensus(fetcher.ReadCheckpoint)
		tracker, err := client.NewLogStateTracker(ctx, fetcher.ReadTile, nil, k.verifier, k.verifier.Name(), consensus)
		if err != nil {
			t.Fatal(err)
		}
		before := tracker.Latest()
		k.write(300)
		k.newest(800)
		if _, _, _, err := tracker.Update(ctx); err != nil {
			t.Fatal(err)
		}
		now := tracker.Latest()
		if before.Size < 500 || now.Size < 800 {
			t.Errorf("%d rows, and then %d", before.Size, now.Size)
		}
		builder, err := client.NewProofBuilder(ctx, now.Size, fetcher.ReadTile)
		if err != nil {
			t.Fatal(err)
		}
		for _, index := range []uint64{0, 255, 256, now.Size - 1} {
			bundle, err := client.GetEntryBundle(ctx, fetcher.ReadEntryBundle, index/256, now.Size)
			if err != nil {
				t.Fatal(err)
			}
			p, err := builder.InclusionProof(ctx, index)
			if err != nil {
				t.Fatal(err)
			}
			leaf := rfc6962.DefaultHasher.HashLeaf(bundle.Entries[index%256])
			if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, now.Size, leaf, p, now.Hash); err != nil {
				t.Errorf("row %d: %v", index+1, err)
			}
		}
		k.write(30)
		k.newest(int64(now.Size) + 30)
		k.lies = "tile/0/003" // the newest rows
		var fork client.ErrInconsistency
		if _, _, _, err := tracker.Update(ctx); !errors.As(err, &fork) {
			t.Errorf("a lie about new rows is not noticed: %v", err)
		}
	})
}
