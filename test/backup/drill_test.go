// Package backup is a disaster drill: key servers are backed up under load and lost. The restored
// databases are compared with all acknowledged writes.
package backup

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// workers is the number of concurrent writers.
const workers = 6

// write is an acknowledged write.
type write struct {
	request string // the id of the request, which its rows have
	role    string // name of the role that it created, or
	key     schema.HiddenLink
	mac     string // MAC of a message, by key
	at      time.Time
}

// loadedServer is a key server under load, and the writes that it has acknowledged.
type loadedServer struct {
	server *program.Server
	url    string // of its PostgreSQL, if it has one
	over   http.RoundTripper
	// password is that of admin, and key is the verification key of the audit log.
	password, key string

	mu    sync.Mutex
	acked []write
	noted []byte // the newest checkpoint

	stop   context.CancelFunc
	ended  sync.WaitGroup
	failed atomic.Pointer[error]
}

// requestIDTransport adds an id to each request, and keeps the last id.
type requestIDTransport struct {
	over http.RoundTripper
	last string
}

// RoundTrip implements http.RoundTripper.
func (n *requestIDTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	n.last = hex.EncodeToString(id[:])
	r = r.Clone(r.Context())
	r.Header.Set("X-Request-Id", n.last)
	return n.over.RoundTrip(r)
}

func newLoadedServer(t *testing.T, url string, args ...string) *loadedServer {
	t.Helper()
	args = append([]string{"--checkpoint-interval", "200ms", "--log-level", "error"}, args...)
	if url != "" {
		args = append(args, "--database-url", url)
	}
	server, err := built.Serve(filepath.Join(t.TempDir(), "data"), args...)
	rig.Must(t, err)
	t.Cleanup(server.Kill)
	h := &loadedServer{server: server, url: url, over: program.Connect(t, server.DataDir, func() string { return server.Address })}
	h.password, err = server.Password()
	rig.Must(t, err)
	key, err := h.client(t, h.over).GetAuditKey(t.Context())
	rig.Must(t, err)
	h.key = key.Key
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	for i := range workers {
		n := &requestIDTransport{over: h.over}
		c := h.client(t, n)
		h.ended.Go(func() { h.work(ctx, i, c, n) })
	}
	h.ended.Go(func() { h.note(ctx, h.client(t, h.over)) })
	t.Cleanup(h.rest)
	return h
}

func (h *loadedServer) client(t *testing.T, over http.RoundTripper) *client.Client {
	t.Helper()
	return program.Client(t, over, "admin", h.password, program.NoRetries)
}

// work creates roles and keys, grants rights and computes MACs, until a request gets no response.
func (h *loadedServer) work(ctx context.Context, worker int, c *client.Client, n *requestIDTransport) {
	r := mathrand.New(mathrand.NewPCG(uint64(worker), 1))
	var keys []schema.HiddenLink
	for i := 0; ctx.Err() == nil; i++ {
		var w write
		var err error
		switch {
		case len(keys) == 0 || r.IntN(10) == 0:
			var made schema.KeyMetadata
			made, err = c.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
			w.key, keys = made.TTag, append(keys, made.TTag)
		case r.IntN(3) == 0:
			w.role = fmt.Sprintf("role %d of %d", i, worker)
			// The role has three operations, and this is the second of them.
			_, err = c.CreateRole(ctx, schema.CreateRoleRequest{Name: w.role, Operations: []schema.HexID{{6: 3, 7: 4}}})
		default:
			w.key = keys[r.IntN(len(keys))]
			var mac schema.HMACResponse
			mac, err = c.HMAC(ctx, w.key, strings.NewReader("message"))
			w.mac = hex.EncodeToString(mac.MAC)
		}
		if err != nil {
			if ctx.Err() == nil && !client.IsUnavailable(err) {
				h.failed.Store(&err)
			}
			return
		}
		w.request, w.at = n.last, time.Now()
		h.mu.Lock()
		h.acked = append(h.acked, w)
		h.mu.Unlock()
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // limits the size of the audit log, not the load
	}
}

// note keeps the newest checkpoint, as an external party would.
func (h *loadedServer) note(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		if text, err := c.GetAuditCheckpoint(ctx); err == nil {
			h.mu.Lock()
			h.noted = text
			h.mu.Unlock()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (h *loadedServer) rest() {
	h.stop()
	h.ended.Wait()
}

func (h *loadedServer) after(t *testing.T, n int) {
	t.Helper()
	rig.Within(t, 2*time.Minute, "enough is written", func() bool {
		if err := h.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.acked) >= n
	})
}

func (h *loadedServer) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acked)
}

// config returns the configuration of the house's database.
func (h *loadedServer) config() sqlstore.Config {
	if h.url != "" {
		return sqlstore.Config{URL: h.url}
	}
	return sqlstore.Config{Dir: h.server.DataDir}
}

// seqs returns the row number of each acknowledged write in the lost database, which a real restore
// would not have. If a request has several rows, the last one counts.
func seqs(t *testing.T, cfg sqlstore.Config) map[string]int64 {
	t.Helper()
	store, err := sqlstore.OpenReadOnly(t.Context(), cfg)
	rig.Must(t, err)
	defer store.Close()
	snapshot, err := store.AuditSnapshot(t.Context())
	rig.Must(t, err)
	all := map[string]int64{}
	for after := int64(0); after < snapshot.LastSeq; {
		rows, err := store.AuditRange(t.Context(), after, snapshot.LastSeq, 1000)
		rig.Must(t, err)
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			if row.Operation == "createRole" || row.Operation == "createKey" || row.Operation == "hmacData" {
				all[row.RequestID] = row.Seq
			}
			after = row.Seq
		}
	}
	return all
}

// backupIdentity has the age identity that decrypts the backups, outside of the key servers.
type backupIdentity struct {
	*age.X25519Identity
	file string
}

func newBackupIdentity(t *testing.T) backupIdentity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	k := backupIdentity{identity, filepath.Join(t.TempDir(), "identity.txt")}
	rig.Must(t, os.WriteFile(k.file, []byte(identity.String()+"\n"), 0o600))
	return k
}

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), built.Path, args...).CombinedOutput()
	return string(out), err
}

var databases = map[string]func(t *testing.T) string{
	"SQLite":     func(*testing.T) string { return "" },
	"PostgreSQL": func(t *testing.T) string { return pgtest.DurableDatabase(t) },
}

// A backup is made under load, and then the key server is lost. The restored database has each
// acknowledged write, or the restore names it as missing.
func TestDrill(t *testing.T) {
	rig.Must(t, program.DependOnSources())
	for kind, database := range databases {
		t.Run(kind, func(t *testing.T) { drill(t, newLoadedServer(t, database(t)), database(t)) })
	}
}

var missing = regexp.MustCompile(`missing: rows? (\d+)(?: to (\d+))? of`)

func drill(t *testing.T, h *loadedServer, elsewhere string) {
	k := newBackupIdentity(t)
	place := filepath.Join(t.TempDir(), "backups")
	h.after(t, 200)
	begun := time.Now()
	out, err := run(t, "backup", "--server", "https://"+h.server.Address, "--ca-file", filepath.Join(h.server.DataDir, "ca.crt"),
		"--password-file", filepath.Join(h.server.DataDir, "bootstrap-password"), "--recipient", k.Recipient().String(), "--to", place)
	if err != nil {
		t.Fatal(err, out)
	}
	h.after(t, h.count()+200)
	h.server.Kill()
	h.rest()
	checkpoint := filepath.Join(t.TempDir(), "checkpoint")
	rig.Must(t, os.WriteFile(checkpoint, h.noted, 0o600))
	were := seqs(t, h.config())
	kek, err := os.ReadFile(filepath.Join(h.server.DataDir, "kek"))
	rig.Must(t, err)
	rig.Must(t, os.RemoveAll(h.server.DataDir))

	r := restored{dir: filepath.Join(t.TempDir(), "new"), begun: begun}
	args := []string{"restore", "--from", place, "--identity", k.file, "--checkpoint", checkpoint, "--data-dir", r.dir}
	r.config = sqlstore.Config{Dir: r.dir}
	if elsewhere != "" {
		r.config, args = sqlstore.Config{URL: elsewhere}, append(args, "--database-url", elsewhere)
	}
	if out, err = run(t, args...); err == nil || !strings.Contains(out, "--accept-loss") {
		t.Fatalf("restored without a word about what is missing: %v\n%s", err, out)
	}
	if out, err = run(t, append(args, "--accept-loss")...); err == nil || !strings.Contains(out, "--key") {
		t.Fatalf("restored, and nobody has said whose backup it is: %v\n%s", err, out)
	}
	if out, err = run(t, append(args, "--accept-loss", "--key", h.key)...); err != nil {
		t.Fatal(err, out)
	}
	m := missing.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("what is missing is not named:\n%s", out)
	}
	r.first, _ = strconv.ParseInt(m[1], 10, 64)
	r.last, _ = strconv.ParseInt(m[2], 10, 64)
	rig.Must(t, os.MkdirAll(r.dir, 0o700))
	rig.Must(t, os.WriteFile(filepath.Join(r.dir, "kek"), kek, 0o600))

	there, named, later := r.account(t, r.open(t), h.acked, seqs(t, r.config), were)
	t.Logf("%d writes acknowledged: %d are there, %d are named as missing, %d came after the checkpoint that was noted last", len(h.acked), there, named, later)
	if there < 150 || named == 0 {
		t.Error("too few to say anything")
	}
	r.serves(t, h)
}

// restored is a restored database.
type restored struct {
	config      sqlstore.Config
	dir         string    // of the key-encryption key
	begun       time.Time // when the backup was requested
	first, last int64     // rows that are reported as missing
}

// open opens the database with its key.
func (r restored) open(t *testing.T) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.OpenReadOnly(t.Context(), r.config)
	rig.Must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	var said bytes.Buffer
	if err := doctor.Run(t.Context(), &said, storecheck.Database(store, func() (string, error) { return keyring.FileKey(r.dir) })); err != nil {
		t.Errorf("doctor: %v\n%s", err, said.String())
	}
	return store // doctor has given it the key of its rows
}

// account compares each acknowledged write with the restored database.
func (r restored) account(t *testing.T, store *sqlstore.Store, acked []write, is, were map[string]int64) (there, named, later int) {
	t.Helper()
	roles, keys := map[string]bool{}, map[string]bool{}
	all, err := store.Roles(t.Context())
	rig.Must(t, err)
	for _, role := range all {
		roles[role.Name] = true
	}
	for _, w := range acked {
		effect := w.role != "" && roles[w.role]
		if w.role == "" {
			name := w.key.String()
			if _, asked := keys[name]; !asked {
				_, id, _ := keyserver.HiddenLink(w.key).Split()
				_, err := store.Key(t.Context(), id)
				if keys[name] = err == nil; err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
					t.Error(err)
				}
			}
			effect = keys[name]
		}
		seq, known := were[w.request]
		switch {
		case !known:
			t.Errorf("an acknowledged write has no row: %+v", w)
		case seq < r.first:
			there++
			if is[w.request] != seq {
				t.Errorf("row %d is not in what was restored, and not among what is missing", seq)
			}
			// A row is durable before its effect, and the backup may be taken in between.
			if !effect && w.at.Before(r.begun) {
				t.Errorf("row %d is there, and what it let through is not: %+v", seq, w)
			}
		case w.at.Before(r.begun):
			t.Errorf("row %d was acknowledged before the backup was begun, and is not in it", seq)
		case w.mac == "" && effect:
			t.Errorf("what row %d let through is there, and the row is not: %+v", seq, w)
		case seq <= max(r.first, r.last):
			named++
		default:
			later++
		}
	}
	return there, named, later
}

// serves checks that a server on the restored database computes the same MACs as before the loss.
func (r restored) serves(t *testing.T, h *loadedServer) {
	t.Helper()
	args := []string{"--log-level", "error"}
	if r.config.URL != "" {
		args = append(args, "--database-url", r.config.URL)
	}
	server, err := built.Serve(r.dir, args...)
	rig.Must(t, err)
	t.Cleanup(server.Kill)
	c := program.Client(t, program.Connect(t, r.dir, func() string { return server.Address }), "admin", h.password, program.NoRetries)
	compared := map[string]bool{}
	for _, w := range h.acked {
		if w.mac == "" || compared[w.key.String()] {
			continue
		}
		mac, err := c.HMAC(t.Context(), w.key, strings.NewReader("message"))
		if client.IsCode(err, "KEY_NOT_FOUND") {
			continue // account has checked it
		}
		rig.Must(t, err)
		if compared[w.key.String()] = true; hex.EncodeToString(mac.MAC) != w.mac {
			t.Errorf("another MAC under %s", w.key)
		}
	}
	if len(compared) == 0 {
		t.Error("no key to compare by")
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}

// restoreCount returns the number of backups that are made at random moments and restored.
func restoreCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv("RIG_RESTORES")
	if text == "" {
		return 8
	}
	n, err := strconv.Atoi(text)
	rig.Must(t, err)
	return n
}

// fromOne is the maximum number of backups of one key server. Its audit log grows with time, and so
// does the duration of a restore.
const fromOne = 20

// A backup under load has all writes that were acknowledged before it, and each effect has its audit row. The restored
// database is intact. RIG_RESTORES=500 takes a long time.
func TestRestoresFromRandomMoments(t *testing.T) {
	rig.Must(t, program.DependOnSources())
	k := newBackupIdentity(t)
	r := mathrand.New(mathrand.NewPCG(mathrand.Uint64(), 1))
	left, rows := restoreCount(t), int64(0)
	each := min(fromOne, (left+1)/2)
	for n := 0; left > 0; n++ {
		kind := "SQLite"
		if n%4 == 1 {
			kind = "PostgreSQL"
		}
		t.Run(fmt.Sprintf("%d of %s", n, kind), func(t *testing.T) {
			h := newLoadedServer(t, databases[kind](t))
			h.after(t, 20)
			over := h.client(t, h.over)
			for range min(each, left) {
				left--
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
				other := databases[[]string{"SQLite", "SQLite", "SQLite", "PostgreSQL"}[r.IntN(4)]](t)
				rows += h.moment(t, over, k, other)
			}
			if err := h.failed.Load(); err != nil {
				t.Error(*err)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d rows of the trail in all", rows)
}

// moment makes a backup now and restores it.
func (h *loadedServer) moment(t *testing.T, c *client.Client, k backupIdentity, url string) (rows int64) {
	t.Helper()
	h.mu.Lock()
	acked := slices.Clone(h.acked)
	h.mu.Unlock()
	r := restored{dir: h.server.DataDir, begun: time.Now()}
	var b bytes.Buffer
	rig.Must(t, c.CreateBackup(t.Context(), schema.BackupRequest{Recipient: schema.Recipient(k.Recipient().String())}, &b))
	from, err := backup.Open(&b, strings.NewReader(k.String()))
	rig.Must(t, err)
	defer from.Close()
	if r.config = (sqlstore.Config{URL: url}); url == "" {
		r.config.Dir = filepath.Join(t.TempDir(), "new")
		defer os.RemoveAll(r.config.Dir) //nolint:errcheck // hundreds would fill the disk
	}
	done, err := backup.Restore(t.Context(), from, backup.Options{Target: r.config, Clock: time.Now})
	rig.Must(t, err)
	r.first = done.Head.Last + 1
	store, is := r.open(t), seqs(t, r.config)
	r.account(t, store, acked, is, is)
	roles, err := store.Roles(t.Context())
	rig.Must(t, err)
	made := 0
	page, err := store.AuditRows(t.Context(), keyserver.AuditFilter{Operation: "createRole", Limit: 1000})
	for ; err == nil; page, err = store.AuditRows(t.Context(), keyserver.AuditFilter{Operation: "createRole", Limit: 1000, After: page.Next}) {
		made += len(page.Entries)
		if page.Next == 0 {
			break
		}
	}
	rig.Must(t, err)
	if len(roles) > made+len(keyserver.BuiltInRoles(keyserver.Unified)) {
		t.Errorf("%d roles, and %d rows that made one", len(roles), made)
	}
	rig.Must(t, store.Close())
	return done.Head.Last
}
