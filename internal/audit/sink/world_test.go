package sink

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// trail is an audit log in a real database, with its tree.
type trail struct {
	store  *sqlstore.Store
	rows   *audit.Writer
	tree   *tree.Tree
	log    lockedBuffer
	logger *slog.Logger
}

func newTrail(t testing.TB, database sqlstore.Config, signer *tree.Signer) *trail {
	t.Helper()
	database.Clock, database.Logger = time.Now, slog.New(slog.DiscardHandler)
	w := &trail{}
	w.logger = slog.New(slog.NewJSONHandler(&w.log, nil))
	var err error
	w.store, err = sqlstore.Open(t.Context(), database)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, w.store.Close()) })
	w.rows, err = audit.NewWriter(t.Context(), w.store, audit.Options{Clock: time.Now, Logger: database.Logger})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, w.rows.Close()) })
	begin, err := tree.Begin(signer, time.Now())
	rig.Must(t, err)
	_, err = w.store.GrowAuditTree(t.Context(), 0, nil, begin, nil) // does nothing if the tree is not empty
	rig.Must(t, err)
	w.tree = tree.New(tree.Config{
		Store: w.store, Signer: signer, Recent: tree.NewRecent(), Interval: 50 * time.Millisecond, Clock: time.Now,
		Logger: w.logger, Alarm: func(string) {}, RowAlarm: func(int64, string) {},
	})
	background(t, w.tree.Run)
	return w
}

func newSigner(t testing.TB) *tree.Signer {
	t.Helper()
	pair, err := tree.NewKey(rand.Reader, tree.Origin("keys of all", 7))
	rig.Must(t, err)
	signer, err := tree.ReadKey(pair)
	rig.Must(t, err)
	return signer
}

// background calls run until the test ends or stop is called.
func background(t testing.TB, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func (w *trail) write(t testing.TB, n int) {
	t.Helper()
	list := make([]keyserver.AuditEntry, n)
	for i := range list {
		list[i] = keyserver.AuditEntry{
			Operation: "hmacData", Outcome: keyserver.Allowed, Principal: keyserver.PrincipalRef{System: 7, ID: values.IDFromUint64(9)},
			RequestID: fmt.Sprintf("request-%d", i), Object: "<\"ü\n\x00]\\", Address: "192.0.2.7",
		}
	}
	for len(list) > 0 {
		some := min(len(list), 50)
		rig.Must(t, w.rows.WriteAll(t.Context(), list[:some]))
		list = list[some:]
	}
	end, err := w.store.AuditEnd(t.Context())
	rig.Must(t, err)
	rig.Soon(t, "the tree has all rows", func() bool { return w.tree.Size() >= end })
}

func (w *trail) config(t testing.TB) Config {
	holder := make([]byte, 16)
	_, _ = rand.Read(holder)
	return Config{
		Store: w.store, Key: w.tree.Signer.Verifier, Size: w.tree.Size, Holder: holder, Source: Source{ServerName: "keys of all", Version: "1.2.3"},
		Out: NewStdout(&w.log), Clock: time.Now, Logger: w.logger, Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

func (w *trail) batch(t testing.TB) *batch {
	t.Helper()
	r := New(w.config(t), Target{Name: t.Name()})
	head, err := w.store.AuditTree(t.Context())
	rig.Must(t, err)
	b, err := r.collect(t.Context(), head)
	rig.Must(t, err)
	return b
}

func target(t testing.TB, url string) Target {
	t.Helper()
	list, err := Parse([]string{url})
	rig.Must(t, err)
	rig.Must(t, list[0].Check())
	return list[0]
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.String(), text)
}
