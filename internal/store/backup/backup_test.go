package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor/storecheck"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// fixture is a key server that has processed requests, with a backup.
type fixture struct {
	identity   *age.X25519Identity
	backup     []byte
	checkpoint []byte        // stored before the backup
	key        note.Verifier // of the checkpoints
	dir        string        // of its key-encryption key
	server     *testserver.Server
	link       schema.HiddenLink
	mac        []byte
}

func newFixture(t *testing.T, options ...testserver.Option) *fixture {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	h := &fixture{identity: identity}
	h.server = testserver.Start(t, append(options, func(c *server.Config) {
		c.CheckpointInterval = 20 * time.Millisecond
		h.dir = c.DataDir
	})...)
	c := h.server.Client(t, testserver.AdminName, testserver.AdminPassword)
	key, err := c.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	mac, err := c.HMAC(t.Context(), key.TTag, strings.NewReader("message"))
	rig.Must(t, err)
	h.link, h.mac = key.TTag, mac.MAC
	signs, err := c.GetAuditKey(t.Context())
	rig.Must(t, err)
	h.key, err = note.NewVerifier(signs.Key)
	rig.Must(t, err)
	rig.Succeeds(t, func() error {
		h.checkpoint, err = c.GetAuditCheckpoint(t.Context())
		if err == nil && h.noted(t).Head.Size < 5 {
			err = errors.New("the tree has yet to grow")
		}
		return err
	})
	h.backup = h.make(t)
	return h
}

func (h *fixture) make(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	c := h.server.Client(t, testserver.AdminName, testserver.AdminPassword)
	rig.Must(t, c.CreateBackup(t.Context(), schema.BackupRequest{Recipient: schema.Recipient(h.identity.Recipient().String())}, &b))
	return b.Bytes()
}

func (h *fixture) noted(t *testing.T) tree.Noted { return noted(t, h.checkpoint) }

func noted(t *testing.T, checkpoint []byte) tree.Noted {
	t.Helper()
	head, _, err := tree.Parse(checkpoint)
	rig.Must(t, err)
	return tree.Noted{Name: "noted", Head: head}
}

func (h *fixture) restore(t *testing.T, from []byte, o backup.Options) (backup.Restored, error) {
	t.Helper()
	r, err := backup.Open(bytes.NewReader(from), strings.NewReader(h.identity.String()))
	if err != nil {
		return backup.Restored{}, err
	}
	defer r.Close()
	o.Clock = time.Now
	return backup.Restore(t.Context(), r, o)
}

func (h *fixture) looks(t *testing.T, cfg sqlstore.Config) error {
	t.Helper()
	store, err := sqlstore.OpenReadOnly(t.Context(), cfg)
	if err != nil {
		return err
	}
	defer store.Close()
	var says strings.Builder
	if err := doctor.Run(t.Context(), &says, storecheck.Database(store, func() (string, error) { return keyring.FileKey(h.dir) })); err != nil {
		return fmt.Errorf("%w\n%s", err, says.String())
	}
	return nil
}

// members returns the backup with members that change has edited. Anyone who knows the recipient
// can make such a backup.
func (h *fixture) members(t *testing.T, change func([]backup.Member) []backup.Member) []byte {
	t.Helper()
	all, err := backup.Members(bytes.NewReader(h.backup), h.identity)
	rig.Must(t, err)
	var b bytes.Buffer
	rig.Must(t, backup.Assemble(&b, h.identity.Recipient(), change(all)))
	return b.Bytes()
}

func at(all []backup.Member, name string) *backup.Member {
	return &all[slices.IndexFunc(all, func(m backup.Member) bool { return m.Name == name })]
}

func edited(m *backup.Member, change func(map[string]any)) {
	d := json.NewDecoder(bytes.NewReader(m.Content))
	d.UseNumber()
	var said map[string]any
	if err := d.Decode(&said); err != nil {
		panic(err)
	}
	change(said)
	m.Content, _ = json.Marshal(said)
}

func without(name string) func(backup.Member) bool {
	return func(m backup.Member) bool { return m.Name == name || strings.HasPrefix(m.Name, name+"/") }
}

func TestWhatIsRefused(t *testing.T) {
	h := newFixture(t)
	other := newFixture(t, func(c *server.Config) { c.SystemID = 2 })
	stranger, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	head := func(change func(map[string]any)) []byte {
		return h.members(t, func(all []backup.Member) []backup.Member {
			edited(at(all, "head.json"), change)
			return all
		})
	}
	flipped := func(at int) []byte {
		b := bytes.Clone(h.backup)
		b[at] ^= 1
		return b
	}
	for reason, tc := range map[string]struct {
		from  []byte
		noted []byte
		says  string
	}{
		"nothing":               {nil, nil, "not a backup of this program"},
		"another file":          {[]byte("a file of somebody else's\n"), nil, "not a backup of this program"},
		"another file for us":   {h.members(t, func([]backup.Member) []backup.Member { return []backup.Member{{Name: "notes"}} }), nil, "not a backup of this program"},
		"its beginning alone":   {h.backup[:100], nil, "not a backup of this program"},
		"a flipped bit":         {flipped(len(h.backup) / 2), nil, "damaged"},
		"another flipped bit":   {flipped(len(h.backup) - 1), nil, "damaged"},
		"half of it":            {h.backup[:len(h.backup)/2], nil, "damaged"},
		"all but the last byte": {h.backup[:len(h.backup)-1], nil, "damaged"},
		"something behind it":   {append(bytes.Clone(h.backup), 0), nil, "damaged"},
		"a form that comes":     {head(func(m map[string]any) { m["format"] = 2 }), nil, "a later one"},
		"a version that comes":  {head(func(m map[string]any) { m["schema"] = 1000000 }), nil, "a later one"},
		"a table that is not":   {head(func(m map[string]any) { m["tables"].([]any)[0].(map[string]any)["name"] = "notes; DROP TABLE roles" }), nil, "damaged"},
		"a column that is not": {head(func(m map[string]any) {
			m["tables"].([]any)[0].(map[string]any)["columns"].([]any)[0].(map[string]any)["name"] = "x"
		}), nil, "damaged"},
		"another tree": {head(func(m map[string]any) { m["tree"].(map[string]any)["size"] = 1 }), nil, "damaged"},
		"fewer rows of a table": {h.members(t, func(all []backup.Member) []backup.Member {
			at(all, "roles/00000001").Content = at(all, "acl_entries/00000001").Content
			return all
		}), nil, "damaged"},
		"a table less":       {h.members(t, func(all []backup.Member) []backup.Member { return slices.DeleteFunc(all, without("used_proofs")) }), nil, "damaged"},
		"no end":             {h.members(t, func(all []backup.Member) []backup.Member { return slices.DeleteFunc(all, without("manifest.json")) }), nil, "damaged"},
		"another key server": {h.backup, other.checkpoint, "different key servers"},
		"another history":    {h.backup, changedRoot(t, h.checkpoint), "another history"},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			o := backup.Options{Target: sqlstore.Config{Dir: dir}}
			if tc.noted != nil {
				o.Checkpoints = []tree.Noted{noted(t, tc.noted)}
			}
			_, err := h.restore(t, tc.from, o)
			if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("want one sentence with %q, got: %v", tc.says, err)
			}
			if left, err := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
	t.Run("another identity", func(t *testing.T) {
		if _, err := backup.Open(bytes.NewReader(h.backup), strings.NewReader(stranger.String())); err == nil || !strings.Contains(err.Error(), "another recipient") {
			t.Error(err)
		}
		if _, err := backup.Open(bytes.NewReader(h.backup), strings.NewReader("AGE-SECRET-KEY-1XYZ")); err == nil || strings.Contains(err.Error(), "XYZ") {
			t.Error(err)
		}
	})
}

func changedRoot(t *testing.T, checkpoint []byte) []byte {
	t.Helper()
	lines := strings.SplitAfter(string(checkpoint), "\n")
	lines[2] = strings.ToUpper(lines[2][:1]) + strings.Repeat("A", 42) + "=\n"
	return []byte(strings.Join(lines, ""))
}

// A backup of another key server with the same name, system id and recipient is rejected, even if its
// description is changed, and even with AcceptLoss.
func TestABackupOfSomebodyElse(t *testing.T) {
	h := newFixture(t)
	forger := newFixture(t) // with the same name and system id
	forger.identity = h.identity
	forged := forger.make(t)
	unsigned := h.members(t, func(all []backup.Member) []backup.Member {
		edited(at(all, "head.json"), func(m map[string]any) { m["tree"] = map[string]any{"size": 0} })
		return all
	})
	large := h.noted(t)
	large.Head.Size = 1 << 40 // more rows than the backup has
	for reason, tc := range map[string]struct {
		from []byte
		o    backup.Options
	}{
		"the key is another one":                           {forged, backup.Options{Key: h.key}},
		"the key is another one, and loss is accepted":     {forged, backup.Options{Key: h.key, Checkpoints: []tree.Noted{large}, AcceptLoss: true}},
		"the checkpoint is another's":                      {forged, backup.Options{Checkpoints: []tree.Noted{h.noted(t)}}},
		"the checkpoint is another's and loss is accepted": {forged, backup.Options{Checkpoints: []tree.Noted{large}, AcceptLoss: true}},
		"nobody has signed":                                {unsigned, backup.Options{Key: h.key}},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new")
			tc.o.Target = sqlstore.Config{Dir: dir}
			if _, err := h.restore(t, tc.from, tc.o); !errors.Is(err, backup.ErrOtherServer) || strings.Contains(err.Error(), "\n") {
				t.Errorf("want one sentence that it is a stranger's, got: %v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
	done, err := h.restore(t, h.backup, backup.Options{Target: sqlstore.Config{Dir: filepath.Join(t.TempDir(), "new")}, Key: h.key, Checkpoints: []tree.Noted{h.noted(t)}})
	if err != nil || !strings.HasPrefix(done.Head.Tree.Signer(), h.key.Name()+"+") {
		t.Errorf("its own: %v, signed by %q", err, done.Head.Tree.Signer())
	}
}

// A restore rejects an audit log that was tampered with before the backup.
func TestATrailThatWasTamperedWith(t *testing.T) {
	h := newFixture(t)
	forged := h.members(t, func(all []backup.Member) []backup.Member {
		m := at(all, "audit/00000001")
		m.Content = bytes.Replace(m.Content, []byte("createKey"), []byte("cr3ateKey"), 1)
		sum := sha256.Sum256(m.Content)
		edited(at(all, "manifest.json"), func(said map[string]any) {
			for _, p := range said["parts"].([]any) {
				if part := p.(map[string]any); part["name"] == "audit" {
					part["sha256"] = sum[:]
				}
			}
		})
		return all
	})
	dir := filepath.Join(t.TempDir(), "new")
	if _, err := h.restore(t, forged, backup.Options{Target: sqlstore.Config{Dir: dir}}); err == nil || !strings.Contains(err.Error(), "not intact") {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	h := newFixture(t)
	c := h.server.Client(t, testserver.AdminName, testserver.AdminPassword)
	last := h.noted(t).Head.Size
	var later []byte
	rig.Succeeds(t, func() (err error) {
		if _, err = c.ListRoles(t.Context()); err == nil {
			later, err = c.GetAuditCheckpoint(t.Context())
		}
		if err == nil && noted(t, later).Head.Size < last+20 {
			err = errors.New("the tree has yet to grow")
		}
		return err
	})
	dir := filepath.Join(t.TempDir(), "new")
	o := backup.Options{Target: sqlstore.Config{Dir: dir}, Checkpoints: []tree.Noted{h.noted(t), noted(t, later)}}
	_, err := h.restore(t, h.backup, o)
	if !errors.Is(err, backup.ErrLoss) || !strings.Contains(err.Error(), "--accept-loss") {
		t.Fatalf("without a word about the loss: %v", err)
	}
	o.AcceptLoss = true
	if _, err := h.restore(t, h.backup, o); !errors.Is(err, backup.ErrLoss) || !strings.Contains(err.Error(), "--key") {
		t.Fatalf("a backup that the checkpoint says nothing of is taken from anybody: %v", err)
	}
	o.Key = h.key
	done, err := h.restore(t, h.backup, o)
	rig.Must(t, err)
	if done.Lost.First != done.Head.Last+1 || done.Lost.Last != noted(t, later).Head.Size {
		t.Errorf("lost: %v, of a backup up to %d", done.Lost, done.Head.Last)
	}
	store, err := sqlstore.OpenReadOnly(t.Context(), sqlstore.Config{Dir: dir})
	rig.Must(t, err)
	defer store.Close()
	page, err := store.AuditRows(t.Context(), keyserver.AuditFilter{Operation: keyserver.AuditRestored})
	rig.Must(t, err)
	if len(page.Entries) != 1 || !strings.Contains(page.Entries[0].Object, done.Lost.String()) {
		t.Errorf("what the trail says of it: %v", page.Entries)
	}
}

// A server on a restored database computes the same MACs. The database has no sessions, and has an
// audit row of the restore. The test restores into both kinds of database.
func TestWhatIsRestoredServes(t *testing.T) {
	kinds := map[string]func(t *testing.T) testserver.Option{
		"SQLite": func(*testing.T) testserver.Option { return func(*server.Config) {} },
		"PostgreSQL": func(t *testing.T) testserver.Option {
			url := pgtest.Database(t)
			return func(c *server.Config) { c.DatabaseURL = url }
		},
	}
	for source, from := range kinds {
		for target, to := range kinds {
			t.Run(source+" to "+target, func(t *testing.T) {
				h := newFixture(t, from(t))
				c := h.server.Client(t, testserver.AdminName, testserver.AdminPassword)
				_, err := c.GetCurrentSession(t.Context())
				rig.Must(t, err)

				var cfg server.Config
				restored := to(t)
				restored(&cfg)
				dir := filepath.Join(t.TempDir(), "new")
				target := sqlstore.Config{URL: cfg.DatabaseURL}
				if target.URL == "" {
					target.Dir = dir
				}
				_, err = h.restore(t, h.backup, backup.Options{Target: target, Checkpoints: []tree.Noted{h.noted(t)}, Name: "a-backup.age"})
				rig.Must(t, err)
				if err := h.looks(t, target); err != nil {
					t.Errorf("doctor: %v", err)
				}
				rig.Must(t, os.MkdirAll(dir, 0o700))
				kek, err := os.ReadFile(filepath.Join(h.dir, "kek"))
				rig.Must(t, err)
				rig.Must(t, os.WriteFile(filepath.Join(dir, "kek"), kek, 0o600))
				again := testserver.Start(t, func(c *server.Config) {
					restored(c)
					c.DataDir = dir
				})
				now := again.Client(t, testserver.AdminName, testserver.AdminPassword)
				mac, err := now.HMAC(t.Context(), h.link, strings.NewReader("message"))
				if err != nil || !bytes.Equal(mac.MAC, h.mac) {
					t.Errorf("another MAC: %x, want %x, %v", mac.MAC, h.mac, err)
				}
				sessions, err := now.ListSessions(t.Context(), schema.SessionQuery{})
				rig.Must(t, err)
				if sessions.Count != 1 {
					t.Errorf("%d sessions are open", sessions.Count)
				}
				page, err := now.ListAuditEntries(t.Context(), schema.AuditQuery{Operation: "restore"})
				rig.Must(t, err)
				if len(page.Entries) != 1 || page.Entries[0].Filename != "a-backup.age" {
					t.Errorf("what the trail says of it: %v", page.Entries)
				}
				rig.Succeeds(t, func() error { // the tree grows after the signed checkpoint
					later, err := now.GetAuditCheckpoint(t.Context())
					if err == nil && noted(t, later).Head.Size <= page.Entries[0].Seq {
						err = errors.New("the tree has yet to grow")
					}
					return err
				})
			})
		}
	}
}

// A restore migrates a backup of an older version, as a start does.
func TestAnOlderVersion(t *testing.T) {
	h := newFixture(t)
	older := h.members(t, func(all []backup.Member) []backup.Member {
		gone := []string{"audit_sinks", "witnessed_logs", "owners", "schema_floor"} // of versions 31 to 34
		for _, name := range gone {
			all = slices.DeleteFunc(all, without(name))
		}
		edited(at(all, "head.json"), func(said map[string]any) {
			said["schema"] = 30
			tables := said["tables"].([]any)
			tables = slices.DeleteFunc(tables, func(t any) bool { return slices.Contains(gone, t.(map[string]any)["name"].(string)) })
			for _, t := range tables {
				if table := t.(map[string]any); table["name"] == "trusted_servers" {
					table["columns"] = slices.DeleteFunc(table["columns"].([]any), func(c any) bool { return c.(map[string]any)["name"] == "witness" })
				}
			}
			said["tables"] = tables
		})
		edited(at(all, "manifest.json"), func(said map[string]any) {
			said["parts"] = slices.DeleteFunc(said["parts"].([]any), func(p any) bool { return slices.Contains(gone, p.(map[string]any)["name"].(string)) })
		})
		return all
	})
	target := sqlstore.Config{Dir: filepath.Join(t.TempDir(), "new")}
	_, err := h.restore(t, older, backup.Options{Target: target})
	rig.Must(t, err)
	if err := h.looks(t, target); err != nil {
		t.Errorf("doctor: %v", err)
	}
}

// No stored text is readable in a backup, even if the text is known.
func TestABackupShowsNothing(t *testing.T) {
	h := newFixture(t)
	for _, known := range []string{"admin", "keyserver", "audit", "test", "createKey", "head.json"} {
		if bytes.Contains(h.backup, []byte(known)) {
			t.Errorf("%q can be read in it", known)
		}
	}
	all, err := backup.Members(bytes.NewReader(h.backup), h.identity)
	rig.Must(t, err)
	kek, err := os.ReadFile(filepath.Join(h.dir, "kek"))
	rig.Must(t, err)
	for _, m := range all {
		if bytes.Contains(m.Content, bytes.TrimSpace(kek)) {
			t.Errorf("the key-encryption key is in %s", m.Name)
		}
	}
}

// When the client of a backup disconnects, the backup stops, and another backup can be made.
func TestABackupThatNobodyTakes(t *testing.T) {
	h := newFixture(t)
	c := h.server.Client(t, testserver.AdminName, testserver.AdminPassword)
	ctx, cancel := context.WithCancel(t.Context())
	in := schema.BackupRequest{Recipient: schema.Recipient(h.identity.Recipient().String())}
	if err := c.CreateBackup(ctx, in, writes(func([]byte) (int, error) { cancel(); return 0, errors.New("full") })); err == nil {
		t.Error("it is taken for whole")
	}
	rig.Succeeds(t, func() error { return c.CreateBackup(t.Context(), in, io.Discard) })
}

type writes func([]byte) (int, error)

func (w writes) Write(b []byte) (int, error) { return w(b) }
