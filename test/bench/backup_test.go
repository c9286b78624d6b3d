package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlite"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// backupRows returns the number of rows of the audit log in the backup.
func backupRows(b *testing.B) int {
	b.Helper()
	text := os.Getenv("BENCH_BACKUP_ROWS")
	if text == "" {
		return 200_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// filledService is a key server with a long audit log, and what its backup needs.
type filledService struct {
	*service
	megabytes float64 // of the database
	identity  *age.X25519Identity
	client    *client.Client
}

func newFilled(b *testing.B) *filledService {
	b.Helper()
	f := &filledService{service: startService(b, false)}
	if err := f.server.Stop(); err != nil {
		b.Fatal(err)
	}
	fillTrail(b, f.server.DataDir, backupRows(b))
	info, err := os.Stat(filepath.Join(f.server.DataDir, sqlite.DatabaseFile))
	if err != nil {
		b.Fatal(err)
	}
	f.megabytes = float64(info.Size()) / 1e6
	if f.identity, err = age.GenerateX25519Identity(); err != nil {
		b.Fatal(err)
	}
	return f
}

func (f *filledService) serve(b *testing.B, args ...string) {
	b.Helper()
	var err error
	if f.server, err = f.binary.Serve(f.server.DataDir, append([]string{"--log-level", "error"}, args...)...); err != nil {
		b.Fatal(err)
	}
	password, err := f.server.Password()
	if err != nil {
		b.Fatal(err)
	}
	f.client = program.Client(b, program.Connect(b, f.server.DataDir, func() string { return f.server.Address }), "admin", password, program.NoRetries)
	if _, err := f.client.GetCurrentSession(b.Context()); err != nil { // hashing a password takes longer than a short backup
		b.Fatal(err)
	}
}

func (f *filledService) request() schema.BackupRequest {
	return schema.BackupRequest{Recipient: schema.Recipient(f.identity.Recipient().String())}
}

// BenchmarkBackup makes backups of an embedded database, without pauses and as a key server does, and restores one.
// The floors process as many bytes with only the necessary work: read, compress and encrypt the file; decrypt,
// decompress and write durably.
func BenchmarkBackup(b *testing.B) {
	f := newFilled(b)
	path := filepath.Join(f.server.DataDir, sqlite.DatabaseFile)
	// rate measures by wall-clock time and by the CPU time of this process.
	rate := func(b *testing.B, work func()) (perSecond, perCPU float64) {
		b.Helper()
		before, err := cpuOf(os.Getpid())
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		for range b.N {
			work()
		}
		elapsed := time.Since(start)
		after, err := cpuOf(os.Getpid())
		if err != nil {
			b.Fatal(err)
		}
		all := f.megabytes * float64(b.N)
		return all / elapsed.Seconds(), all / (after - before).Seconds()
	}
	compare := func(b *testing.B, work, floor func()) {
		b.Helper()
		is, cpu := rate(b, work)
		least, leastCPU := rate(b, floor)
		b.ReportMetric(is, "MB/s")
		b.ReportMetric(cpu, "MB/cpu-s")
		b.ReportMetric(least, "floor-MB/s")
		b.ReportMetric(leastCPU, "floor-MB/cpu-s")
	}
	must := func(b *testing.B, err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	var made bytes.Buffer
	b.Run("make", func(b *testing.B) {
		store, err := sqlstore.Open(b.Context(), sqlstore.Config{Dir: f.server.DataDir})
		must(b, err)
		defer store.Close()
		maker := &backup.Maker{Store: store, System: 1, ServerName: "keys", Version: "bench", Clock: time.Now,
			KEK: func(context.Context) keyserver.KEK { return keyserver.KEK{} }}
		compare(b, func() {
			made.Reset()
			must(b, maker.Write(b.Context(), f.identity.Recipient().String(), &made))
		}, func() { must(b, sealed(path, f.identity.Recipient())) })
		b.ReportMetric(f.megabytes*1e6/float64(made.Len()), "to_one")
	})
	b.Run("restore", func(b *testing.B) {
		n := 0
		compare(b, func() {
			from, err := backup.Open(bytes.NewReader(made.Bytes()), strings.NewReader(f.identity.String()))
			must(b, err)
			defer from.Close()
			n++
			_, err = backup.Restore(b.Context(), from, backup.Options{Target: sqlstore.Config{Dir: filepath.Join(b.TempDir(), fmt.Sprint(n))}, Clock: time.Now})
			must(b, err)
		}, func() { must(b, opened(made.Bytes(), f.identity, filepath.Join(b.TempDir(), "floor"))) })
	})
	f.serve(b)
	b.Run("serve", func(b *testing.B) {
		before, err := cpuOf(f.server.PID())
		must(b, err)
		is, _ := rate(b, func() { must(b, f.client.CreateBackup(b.Context(), f.request(), io.Discard)) })
		after, err := cpuOf(f.server.PID())
		must(b, err)
		b.ReportMetric(is, "MB/s")
		b.ReportMetric((after-before).Seconds()/b.Elapsed().Seconds(), "cores")
	})
}

// sealed compresses and encrypts a file.
func sealed(path string, recipient age.Recipient) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	encrypted, err := age.Encrypt(io.Discard, recipient)
	if err != nil {
		return err
	}
	compressed, err := zstd.NewWriter(encrypted, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	_, err = io.Copy(compressed, file)
	return errors.Join(err, compressed.Close(), encrypted.Close())
}

// opened decrypts and decompresses a backup, and writes it durably.
func opened(made []byte, identity age.Identity, path string) error {
	decrypted, err := age.Decrypt(bytes.NewReader(made), identity)
	if err != nil {
		return err
	}
	plain, err := zstd.NewReader(decrypted, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer plain.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, plain)
	return errors.Join(err, file.Sync(), file.Close())
}

// The windows in which requests are counted, alternately with and without a backup or replication.
const (
	defaultPairs = 40
	windowTime   = 500 * time.Millisecond
)

func pairs(b *testing.B) int {
	b.Helper()
	text := os.Getenv("BENCH_PAIRS")
	if text == "" {
		return defaultPairs
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		b.Fatalf("BENCH_PAIRS is %q", text)
	}
	return n
}

// BenchmarkBackupBeside counts HMAC requests in time windows, alternately with and without a backup, and with and
// without replication. control compares two key servers without backup and replication, which shows the noise of the
// machine.
func BenchmarkBackupBeside(b *testing.B) {
	f := newFilled(b)
	f.serve(b)
	alone, replicated, other := startProcess(b, f.binary), startProcess(b, f.binary), startProcess(b, f.binary)
	place := filepath.Join(b.TempDir(), "replica")
	replicated.restart(b, "--log-level", "error", "--replicate-to", place, "--replicate-recipient", f.identity.Recipient().String())
	for segments := []string(nil); len(segments) == 0; time.Sleep(10 * time.Millisecond) { // until after the base
		segments, _ = filepath.Glob(filepath.Join(place, "*-000000001-*"))
	}
	for _, conns := range []int{1, 16} {
		for _, beside := range []struct {
			name          string
			without, with *service
			begin         func() (end func())
		}{
			{"backup", f.service, f.service, f.begin},
			{"replication", alone, replicated, func() func() { return func() {} }},
			{"control", alone, other, func() func() { return func() {} }},
		} {
			b.Run(fmt.Sprintf("%s/conns=%d", beside.name, conns), func(b *testing.B) {
				without, with := newWindows(b, beside.without, conns), newWindows(b, beside.with, conns)
				measureAlternately(b, without, with, beside.begin)
			})
		}
	}
}

// measureAlternately counts in pairs of windows with and without the other work, and reports the first as a percentage of the
// second.
func measureAlternately(b *testing.B, without, with *windows, begin func() (end func())) {
	b.Helper()
	n := pairs(b)
	for i := range n {
		one := func() { without.count(b) }
		two := func() {
			end := begin()
			with.count(b)
			end()
		}
		if i%2 == 1 {
			one, two = two, one
		}
		one()
		two()
	}
	of := func(of func(*windows, int) float64) []float64 {
		all := make([]float64, n)
		for i := range n {
			all[i] = 100 * of(with, i) / of(without, i)
		}
		slices.Sort(all)
		return all
	}
	rates, cpus := of(func(w *windows, i int) float64 { return w.rates[i] }), of(func(w *windows, i int) float64 { return w.cpus[i] })
	b.ReportMetric(0, "ns/op") // meaningless here
	b.ReportMetric(rates[n/2], "%-of-rate")
	b.ReportMetric(rates[n/4], "%-of-rate-p25")
	b.ReportMetric(rates[3*n/4], "%-of-rate-p75")
	b.ReportMetric(cpus[n/2], "%-of-cpu/req")
	slices.Sort(without.rates)
	b.ReportMetric(without.rates[n/2], "req/s-without")
}

// begin starts a backup, and waits until it is running. The returned function cancels the backup.
func (f *filledService) begin() func() {
	ctx, cancel := context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ctx.Err() == nil; {
			_ = f.client.CreateBackup(ctx, f.request(), writerFunc(func(p []byte) (int, error) { // cancelled at the end
				if first {
					close(begun)
					first = false
				}
				return len(p), nil
			}))
		}
	}()
	<-begun
	return func() {
		cancel()
		<-ended
	}
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// windows has the results of the time windows of one kind: with or without the other work.
type windows struct {
	load *load
	pid  int
	rawhttp.Exchange
	rates, cpus []float64 // requests per second, and CPU time of the server per request
}

func newWindows(b *testing.B, s *service, conns int) *windows {
	b.Helper()
	x, err := s.hmac(sizes[0])
	if err != nil {
		b.Fatal(err)
	}
	l, err := dial(s.server.Address, conns)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.close() }) // already measured
	if _, err := l.run(1000, x, nil); err != nil {
		b.Fatal(err)
	}
	return &windows{load: l, pid: s.server.PID(), Exchange: x}
}

// count counts requests during one window.
func (w *windows) count(b *testing.B) {
	b.Helper()
	const step = 64 // between two looks at the clock
	before, err := cpuOf(w.pid)
	if err != nil {
		b.Fatal(err)
	}
	n, start := 0, time.Now()
	var elapsed time.Duration
	var took []time.Duration
	for ; elapsed < windowTime; elapsed = time.Since(start) {
		if took, err = w.load.run(step, w.Exchange, took[:0]); err != nil {
			b.Fatal(err)
		}
		n += step
	}
	after, err := cpuOf(w.pid)
	if err != nil {
		b.Fatal(err)
	}
	w.rates = append(w.rates, float64(n)/elapsed.Seconds())
	w.cpus = append(w.cpus, (after-before).Seconds()/float64(n))
}

// replayed is the number of audit rows in a journal that is replayed. A journal has at most 8 MiB.
const replayed = 20_000

// BenchmarkReplay opens a database whose process was killed when this many rows of the audit log were in its journal
// and in no table, and the same database with an empty journal.
func BenchmarkReplay(b *testing.B) {
	dir, killed, stopped := filepath.Join(b.TempDir(), "data"), filepath.Join(b.TempDir(), "killed"), filepath.Join(b.TempDir(), "stopped")
	store, err := sqlstore.Open(b.Context(), sqlstore.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	w, err := audit.NewWriter(b.Context(), store, audit.Options{Batch: 256})
	if err != nil {
		b.Fatal(err)
	}
	// The rows stay in the journal while another writer locks the database.
	if err := store.Update(b.Context(), func(*sqlstore.Tx) error {
		if err := writeRows(b.Context(), w, replayed, 256); err != nil {
			return err
		}
		return os.CopyFS(killed, os.DirFS(dir))
	}); err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(w.Close(), store.Close(), os.CopyFS(stopped, os.DirFS(dir))); err != nil {
		b.Fatal(err)
	}
	open := func(of string, i int) time.Duration {
		at := filepath.Join(b.TempDir(), strconv.Itoa(i))
		if err := os.CopyFS(at, os.DirFS(of)); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		s, err := sqlstore.Open(b.Context(), sqlstore.Config{Dir: at})
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(start)
		end, err := s.AuditEnd(b.Context())
		if err := errors.Join(err, s.Close(), os.RemoveAll(at)); err != nil || end != replayed {
			b.Fatalf("%d rows, %v", end, err)
		}
		return took
	}
	var with, without []time.Duration
	for i := range b.N {
		with, without = append(with, open(killed, i)), append(without, open(stopped, i))
	}
	slices.Sort(with)
	slices.Sort(without)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(with[len(with)/2].Seconds()*1e3, "ms-open")
	b.ReportMetric(without[len(without)/2].Seconds()*1e3, "ms-open-without")
	b.ReportMetric(replayed/(with[len(with)/2]-without[len(without)/2]).Seconds(), "rows/s")
}

// fillTrail writes rows as fast as possible while no server runs.
func fillTrail(b *testing.B, dir string, rows int) {
	b.Helper()
	store, err := sqlstore.Open(b.Context(), sqlstore.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	w, err := audit.NewWriter(b.Context(), store, audit.Options{Batch: 4096})
	if err != nil {
		b.Fatal(err)
	}
	if err := writeRows(b.Context(), w, rows, 4096); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

func writeRows(ctx context.Context, w *audit.Writer, rows, batch int) error {
	for left := rows; left > 0; left -= batch {
		entries := make([]keyserver.AuditEntry, min(left, batch))
		for i := range entries {
			entries[i] = keyserver.AuditEntry{
				Operation: "hmacData", Outcome: keyserver.Allowed, Kind: keyserver.PasswordSession, Object: "AAAAAQAAAAAAAAAB", RequestID: fmt.Sprintf("%016x", left-i),
				Principal: keyserver.PrincipalRef{System: 1, ID: values.IDFromUint64(uint64(i % 50))}, Address: "192.0.2.1",
			}
		}
		if err := w.WriteAll(ctx, entries); err != nil {
			return err
		}
	}
	return nil
}
