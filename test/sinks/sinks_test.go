// Package sinks kills a real server with SIGKILL while it delivers its audit log to rsyslog and to
// an HTTPS receiver. Both have to get every row. The rows are verified with the public key of the
// log, as by a receiver that does not trust the server.
package sinks

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/inbox"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rsyslog"
)

var binary program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &binary, false)) }

// web is an HTTPS receiver.
type web struct {
	inbox.Inbox
	url   string
	wrong atomic.Pointer[error]
}

func newWeb(t *testing.T) *web {
	t.Helper()
	w := &web{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var events []struct {
			Data json.RawMessage `json:"data"`
		}
		if json.NewDecoder(r.Body).Decode(&events) != nil {
			out.WriteHeader(http.StatusBadRequest) // the sender was killed
			return
		}
		for _, e := range events {
			if err := w.Take(e.Data); err != nil {
				w.wrong.Store(&err)
			}
		}
	}))
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	rig.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	w.url = server.URL + "?ca=" + ca
	return w
}

// logKey returns the public key of the log of a stopped server.
func logKey(t *testing.T, database sqlstore.Config) note.Verifier {
	t.Helper()
	database.Clock, database.Logger = time.Now, slog.New(slog.DiscardHandler)
	store, err := sqlstore.Open(t.Context(), database)
	rig.Must(t, err)
	defer store.Close()
	keeper, err := keyring.Open(t.Context(), program.KEK)
	rig.Must(t, err)
	defer keeper.Close()
	ring, err := keyring.Start(t.Context(), keeper, store, keyring.Options{Clock: time.Now})
	rig.Must(t, err)
	store.UseRowKey(ring.RowKey())
	signer, err := bootstrap.AuditSigner(t.Context(), bootstrap.Config{Store: store, Keyring: ring})
	rig.Must(t, err)
	return signer.Verifier
}

func proven(in *inbox.Inbox, key note.Verifier, upTo int64) func() error {
	return func() error {
		last, err := in.Proven(key)
		if err == nil && last < upTo {
			err = errors.New("not yet")
		}
		if err != nil {
			return fmt.Errorf("%d of %d: %w", last, upTo, err)
		}
		return nil
	}
}

// work adds rows to the audit log, and returns the number of the last row.
func work(t *testing.T, admin *client.Client) int64 {
	t.Helper()
	for range 200 {
		_, err := admin.ListRoles(t.Context())
		rig.Must(t, err)
	}
	return lastRow(t, admin)
}

func lastRow(t *testing.T, admin *client.Client) (last int64) {
	t.Helper()
	limit := 1000
	for cursor := int64(0); ; {
		page, err := admin.ListAuditEntries(t.Context(), schema.AuditQuery{Cursor: cursor, Limit: &limit})
		rig.Must(t, err)
		for _, e := range page.Entries {
			last = e.Seq
		}
		if page.Next == nil {
			return last
		}
		cursor = *page.Next
	}
}

func TestAServerThatIsKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	receiver, syslog := newWeb(t), rsyslog.Start(t, "ossl")
	args := []string{"--kek", program.KEK, "--server-name", "keys", "--audit-sink", receiver.url, "--audit-sink", syslog.URL, "--checkpoint-interval", "100ms"}
	first, err := binary.Serve(dir, args...)
	rig.Must(t, err)
	rig.Must(t, first.Stop())
	key := logKey(t, sqlstore.Config{Dir: dir})

	for range 12 {
		server, err := binary.Serve(dir, args...)
		rig.Must(t, err)
		admin, killed := server.Admin(t, 0), make(chan struct{})
		go func() {
			defer close(killed)
			for err := error(nil); err == nil; {
				_, err = admin.ListRoles(t.Context())
			}
		}()
		time.Sleep(rand.N(1500 * time.Millisecond)) // during a delivery, or between deliveries
		server.Kill()
		<-killed
	}
	server, err := binary.Serve(dir, args...)
	rig.Must(t, err)
	defer server.Kill()
	last := lastRow(t, server.Admin(t, 0))
	rig.Succeeds(t, proven(&receiver.Inbox, key, last))
	var parsed *inbox.Inbox
	rig.Succeeds(t, func() error {
		parsed = &inbox.Inbox{}
		for _, line := range syslog.Lines(t) {
			if err := parsed.Take([]byte(line.Message)); err != nil {
				return err
			}
		}
		return proven(parsed, key, last)()
	})
	if err := receiver.wrong.Load(); err != nil {
		t.Error(*err)
	}
	if text := server.Log(); strings.Contains(text, "does not accept rows") {
		t.Error(text)
	}
	t.Logf("%d rows; twice came %d by HTTPS, %d by syslog", last, receiver.Duplicates, parsed.Duplicates)
}

// TestAReplicaThatIsKilled checks that another replica continues the delivery.
func TestAReplicaThatIsKilled(t *testing.T) {
	url, receiver := migrated.Database(t), newWeb(t)
	args := []string{"--kek", program.KEK, "--server-name", "keys", "--database-url", url, "--audit-sink", receiver.url, "--checkpoint-interval", "100ms"}
	first, err := binary.Serve(filepath.Join(t.TempDir(), "data"), args...)
	rig.Must(t, err)
	admin := first.Admin(t, 0)
	last := work(t, admin)
	second, err := binary.Serve(filepath.Join(t.TempDir(), "data"), args...)
	rig.Must(t, err)
	rig.Soon(t, "the first one delivers", func() bool { return receiver.Last() >= last })
	first.Kill()
	password, err := first.Password()
	rig.Must(t, err)
	roots, err := program.Roots(second.DataDir)
	rig.Must(t, err)
	over := program.Transport(roots, func() string { return second.Address })
	last = work(t, program.Client(t, over, "admin", password, 0))
	rig.Soon(t, "the second one delivers", func() bool { return receiver.Last() >= last })
	rig.Must(t, second.Stop())
	rig.Must(t, proven(&receiver.Inbox, logKey(t, sqlstore.Config{URL: url}), last)())
	if err := receiver.wrong.Load(); err != nil {
		t.Error(*err)
	}
	t.Logf("%d rows, %d twice", last, receiver.Duplicates)
}

// TestStandardOutput checks that a reader gets every row, and that a reader that stops or ends does
// not block the server.
func TestStandardOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	args := []string{"--kek", program.KEK, "--server-name", "keys", "--audit-sink", "stdout:", "--checkpoint-interval", "100ms"}
	server, err := binary.Serve(dir, args...)
	rig.Must(t, err)
	last := work(t, server.Admin(t, 0))
	in := &inbox.Inbox{}
	rig.Soon(t, "all rows are printed", func() bool {
		in = &inbox.Inbox{}
		for line := range strings.Lines(server.Log()) {
			if strings.HasPrefix(line, `{"activity_id"`) && strings.HasSuffix(line, "\n") {
				rig.Must(t, in.Take([]byte(line)))
			}
		}
		return in.Last() >= last
	})
	password, err := server.Password()
	rig.Must(t, err)
	rig.Must(t, server.Stop())
	rig.Must(t, proven(in, logKey(t, sqlstore.Config{Dir: dir}), last)())

	for name, after := range map[string]func(read *os.File) error{
		"nobody reads":   func(*os.File) error { return nil },
		"nobody is left": func(read *os.File) error { return read.Close() },
	} {
		read, write, err := os.Pipe()
		rig.Must(t, err)
		said := &rig.Output{}
		silent := exec.Command(binary.Path, append([]string{"serve", "--listen", "127.0.0.1:0", "--external-listen", "", "--data-dir", dir}, args...)...)
		silent.Env, silent.Stdout, silent.Stderr = program.Environment(), write, said
		silent.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
		rig.Must(t, silent.Start())
		rig.Must(t, write.Close())
		address := ready(t, read)
		rig.Must(t, after(read))
		over := program.Connect(t, dir, func() string { return address })
		admin := program.Client(t, over, "admin", password, 0)
		for range 3 { // more than the pipe can buffer
			work(t, admin)
		}
		rig.Soon(t, name, func() bool { return strings.Contains(said.String(), "an audit sink does not accept rows") })
		work(t, admin)
		rig.Must(t, silent.Process.Signal(syscall.SIGTERM))
		if err := silent.Wait(); err != nil {
			t.Errorf("%s: the server ends with %v: %s", name, err, said)
		}
		_ = read.Close()
	}
}

// ready reads standard output up to the line with the address of the server.
func ready(t *testing.T, from *os.File) string {
	t.Helper()
	var text []byte
	for one := make([]byte, 1); ; {
		_, err := from.Read(one)
		rig.Must(t, err)
		if text = append(text, one[0]); one[0] != '\n' {
			continue
		}
		_, line, _ := strings.Cut("\n"+string(text), "\nready: https://")
		if address, _, found := strings.Cut(line, " "); found {
			return address
		}
	}
}
