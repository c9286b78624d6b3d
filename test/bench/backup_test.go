package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/backup"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// backupRows is how many rows of the audit trail are backed up.
func backupRows(b *testing.B) int {
	b.Helper()
	text := os.Getenv("KEYSERVER_BENCH_BACKUP_ROWS")
	if text == "" {
		return 200_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkBackup makes backups of an embedded database, beside requests for HMACs and
// without them, and restores one. Rates of HMACs are set against those without a backup,
// measured in turn.
func BenchmarkBackup(b *testing.B) {
	s := startService(b, false)
	if err := s.server.Stop(); err != nil {
		b.Fatal(err)
	}
	rows := backupRows(b)
	fillTrail(b, s.server.DataDir, rows)
	var err error
	if s.server, err = s.binary.Serve(s.server.DataDir, "--log-level", "error"); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(s.server.DataDir, sqlstore.DatabaseFile))
	if err != nil {
		b.Fatal(err)
	}
	megabytes := float64(info.Size()) / 1e6
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		b.Fatal(err)
	}
	password, err := s.server.Password()
	if err != nil {
		b.Fatal(err)
	}
	c := program.Client(b, program.Connect(b, s.server.DataDir, func() string { return s.server.Address }), "admin", password, program.Never)
	in := schema.BackupRequest{Recipient: schema.Recipient(identity.Recipient().String())}
	pid := s.server.PID()

	var made bytes.Buffer
	b.Run("backup", func(b *testing.B) {
		before, err := cpuOf(pid)
		if err != nil {
			b.Fatal(err)
		}
		for range b.N {
			made.Reset()
			if err := c.CreateBackup(b.Context(), in, &made); err != nil {
				b.Fatal(err)
			}
		}
		after, err := cpuOf(pid)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(megabytes*float64(b.N)/b.Elapsed().Seconds(), "MB/s")
		b.ReportMetric((after-before).Seconds()/b.Elapsed().Seconds(), "cores")
		b.ReportMetric(megabytes*1e6/float64(made.Len()), "to_one")
	})
	b.Run("restore", func(b *testing.B) {
		for i := range b.N {
			from, err := backup.Open(bytes.NewReader(made.Bytes()), bytes.NewReader([]byte(identity.String())))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := backup.Restore(b.Context(), from, backup.Options{Target: sqlstore.Config{Dir: filepath.Join(b.TempDir(), fmt.Sprint(i))}, Clock: time.Now}); err != nil {
				b.Fatal(err)
			}
			from.Close()
		}
		b.ReportMetric(megabytes*float64(b.N)/b.Elapsed().Seconds(), "MB/s")
	})
	z := sizes[0]
	x, err := s.hmac(z)
	if err != nil {
		b.Fatal(err)
	}
	for _, conns := range []int{1, 16} {
		b.Run(fmt.Sprintf("hmac/conns=%d", conns), func(b *testing.B) {
			alone, beside := newTarget(b, s.server.Address, pid, conns, x), newTarget(b, s.server.Address, pid, conns, x)
			defer alone.load.close()  //nolint:errcheck // measured already
			defer beside.load.close() //nolint:errcheck // measured already
			backups := 0
			for range parts {
				n := max(b.N/parts, 1000) // so that a backup is under way for most of it
				alone.work(b, n)
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan int)
				go func() {
					n := 0
					for ctx.Err() == nil {
						if c.CreateBackup(ctx, in, io.Discard) == nil {
							n++
						}
					}
					ended <- n
				}()
				beside.work(b, n)
				cancel()
				backups += <-ended
			}
			b.ReportMetric(100*beside.rate()/alone.rate(), "%_of_alone")
			b.ReportMetric(float64(backups), "backups")
		})
	}
}

// fillTrail writes rows as fast as it goes, while no server runs.
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
	for left := rows; left > 0; left -= 4096 {
		entries := make([]keyserver.AuditEntry, min(left, 4096))
		for i := range entries {
			entries[i] = keyserver.AuditEntry{
				Operation: "hmacData", Outcome: keyserver.Allowed, Kind: keyserver.PasswordSession, Object: "AAAAAQAAAAAAAAAB", RequestID: fmt.Sprintf("%016x", left-i),
				Principal: keyserver.PrincipalRef{System: 1, ID: keyserver.IDFromUint64(uint64(i % 50))}, Address: "192.0.2.1",
			}
		}
		if err := w.WriteAll(b.Context(), entries); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}
