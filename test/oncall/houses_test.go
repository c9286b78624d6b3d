package oncall

import (
	"context"
	"database/sql"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var houses = []alertEnvironment{
	{"KeyServerDatabaseWentBack", nil, wentBack},
	{"KeyServerDatabaseConnectionsShort", map[string]string{"use": "read"}, connectionsShort},
	{"KeyServerFailing", nil, failing},
	{"KeyServerPartFails", map[string]string{"part": "database"}, failing},
	{"KeyServerLogInConflict", map[string]string{"conflict": "logRolledBack"}, inConflict},
	{"KeyServerRowsTampered", map[string]string{"table": "roles"}, tampered},
	{"KeyServerClockStepped", nil, clockStepped},
	{"KeyServerAuditTreeStalls", nil, treeStalls},
	{"KeyServerAuthorityEnds", nil, authorityEnds},
	{"KeyServerAuditArchiveFails", nil, archiveFails},
	{"KeyServerBackupLate", nil, backupLate},
	{"KeyServerReplicationBehind", nil, replicationBehind},
	{"KeyServerAuditSinkBehind", nil, sinkBehind},
	{"KeyServerVolumeFillsUp", nil, fillsUp},
	{"KeyServerShareUsedUp", map[string]string{"ceiling": "waiting"}, shareUsedUp},
	{"KeyServerCeilingReached", map[string]string{"ceiling": "strangers"}, ceilingReached},
}

// wentBack promotes a standby that lacks the newest changes.
func wentBack(t *testing.T) startedEnvironment {
	primary := pgtest.Start(t)
	database := primary.Database(t)
	standby := primary.Standby(t, "second")
	k := serve(t, built, "--database-url", pgtest.On(database, primary, standby))
	admin := k.admin(t)
	head := func(on *pgtest.Cluster) (n int64) {
		conn, err := pgx.Connect(t.Context(), strings.Replace(pgtest.On(database, on), "read-write", "any", 1))
		if err != nil {
			return 0
		}
		defer func() { _ = conn.Close(t.Context()) }()
		_ = conn.QueryRow(t.Context(), `SELECT value FROM sequences WHERE name = 'audit'`).Scan(&n) // 0 on error: wait on
		return n
	}
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			write(t, admin, 5)
			rig.Soon(t, "the standby has caught up", func() bool { n := head(primary); return n > 0 && head(standby) >= n })
			standby.Kill(t)
			for i := range 5 {
				newRole(t, admin, fmt.Sprint("gone ", i))
			}
			primary.Kill(t)
			standby.Restart(t)
			standby.Promote(t)
		},
		cure: func(t *testing.T) {
			rig.Soon(t, "the log has the numbers", func() bool { return strings.Contains(k.Log(), "the database has gone back") })
			k.stop(t)
			k.start(t, "--database-url", pgtest.On(database, standby))
			newRole(t, k.admin(t), "gone 0") // repeats the lost change
		},
	}
}

// connectionsShort sends more concurrent requests than there are database connections.
func connectionsShort(t *testing.T) startedEnvironment {
	database := pgtest.Database(t)
	k := serve(t, built, "--database-url", database, "--database-max-connections", fmt.Sprint(postgres.MinConnections))
	admin := k.admin(t)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			load(t, 48, func(ctx context.Context) {
				limit := 1000
				_, _ = admin.ListAuditEntries(ctx, schema.AuditQuery{Limit: &limit}) // refused requests have also waited
			})
		},
		cure: func(t *testing.T) { k.restart(t, "--database-max-connections", "80") },
	}
}

// failing kills and restarts PostgreSQL.
func failing(t *testing.T) startedEnvironment {
	postgres := pgtest.Start(t)
	k := serve(t, built, "--database-url", pgtest.On(postgres.Database(t), postgres))
	admin := k.admin(t)
	load(t, 1, func(ctx context.Context) { _, _ = admin.ListRoles(ctx) }) // counted by the key server
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) { postgres.Kill(t) },
		cure:    func(t *testing.T) { postgres.Restart(t) },
	}
}

// inConflict restores a key server with a witness to an earlier state.
func inConflict(t *testing.T) startedEnvironment {
	site := func(system int) *keyServer {
		host := fmt.Sprintf("127.0.0.%d", system+1)
		return serve(t, built, "--system-id", fmt.Sprint(system), "--server-name", host, "--external-listen", rig.FreeAddress(t, host))
	}
	log, witness := site(1), site(2)
	there, here := log.admin(t), witness.admin(t)
	program.Trust(t, here, there)
	program.Trust(t, there, here)
	seen := func(t *testing.T) schema.WitnessedLog {
		t.Helper()
		w, err := witness.admin(t).GetWitness(t.Context())
		rig.Must(t, err)
		for _, l := range w.Logs {
			if l.SystemID != nil && *l.SystemID == 1 {
				return l
			}
		}
		return schema.WitnessedLog{}
	}
	mutual(t, there, 2)
	mutual(t, here, 1)
	rig.Soon(t, "the log is cosigned", func() bool { return seen(t).Size > 0 })
	return startedEnvironment{
		scraped: []*keyServer{log, witness},
		provoke: func(t *testing.T) {
			log.stop(t)
			before := filepath.Join(t.TempDir(), "before")
			rig.Must(t, os.CopyFS(before, os.DirFS(log.dataDir)))
			log.start(t, log.args...)
			had := seen(t).Size
			write(t, log.admin(t), 20)
			rig.Soon(t, "more is cosigned", func() bool { return seen(t).Size >= had+20 })
			log.stop(t)
			rig.Must(t, os.RemoveAll(log.dataDir))
			rig.Must(t, os.CopyFS(log.dataDir, os.DirFS(before)))
			log.start(t, log.args...)
		},
		cure: func(t *testing.T) {
			if l := seen(t); l.Conflict != "logRolledBack" {
				t.Errorf("GET /api/witness says %+v", l)
			}
			_, err := here.RemoveTrustedServer(t.Context(), schema.BySystemID{SystemID: 1})
			rig.Must(t, err)
			info, err := log.admin(t).GetLocalTrustInfo(t.Context())
			rig.Must(t, err)
			_, err = here.AddTrustedServer(t.Context(), schema.AddTrustedServerRequest{TrustBlob: *info.TrustBlob, FriendlyName: "peer"})
			rig.Must(t, err)
			mutual(t, here, 1)
			witness.restart(t)
			write(t, log.admin(t), 5)
			rig.Soon(t, "the log is cosigned again", func() bool { l := seen(t); return l.Size > 0 && l.Conflict == "" })
		},
	}
}

// mutual makes a key server a witness of a peer. Call it on both key servers, so that they witness each other.
func mutual(t *testing.T, at *client.Client, peer schema.SystemID) {
	t.Helper()
	_, err := at.UpdateTrustedServer(t.Context(), schema.UpdateTrustedServerRequest{SystemID: peer, Witness: new(true)})
	rig.Must(t, err)
}

// tampered adds an operation to a role directly in the database.
func tampered(t *testing.T) startedEnvironment {
	k := serve(t, built)
	admin := k.admin(t)
	clerk := newRole(t, admin, "clerk")
	operation := keyserver.OpExportKey.ID
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			change(t, k.database(t), `INSERT INTO role_operations (role_id, operation_id) VALUES ($1, $2)`, clerk[:], operation[:])
			rolesAnswer(t, admin, "STORE_TAMPERED")
		},
		cure: func(t *testing.T) {
			want := fmt.Sprintf("rows: roles %s: it does not agree with its MAC", keyserver.ID(clerk).Hex())
			if said, err := k.doctor(t); err == nil || !strings.Contains(said, want) {
				t.Errorf("doctor says, without %q: %v\n%s", want, err, said)
			}
			change(t, k.database(t), `DELETE FROM role_operations WHERE role_id = $1 AND operation_id = $2`, clerk[:], operation[:])
			if said, err := k.doctor(t); err != nil {
				t.Errorf("doctor says: %v\n%s", err, said)
			}
			k.restart(t)
		},
	}
}

// clockStepped sets the machine's clock forward by a minute.
func clockStepped(t *testing.T) startedEnvironment {
	k := serve(t, settable)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) { rig.Must(t, program.SetClock(k.dataDir, time.Minute)) },
		cure:    func(t *testing.T) { rig.Must(t, program.SetClock(k.dataDir, 0)) },
	}
}

// treeStalls changes signed data of the audit tree.
func treeStalls(t *testing.T) startedEnvironment {
	k := serve(t, built)
	admin := k.admin(t)
	write(t, admin, 5)
	db := k.database(t)
	var were map[[2]int64][]byte
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			were = tiles(t, db)
			change(t, db, `UPDATE audit_tiles SET hashes = zeroblob(length(hashes))`)
			write(t, admin, 5)
		},
		cure: func(t *testing.T) {
			rig.Soon(t, "the log says it", func() bool { return strings.Contains(k.Log(), "the audit tree does not grow") })
			said, err := k.by.Run("audit", "verify", "--data-dir", k.dataDir)
			if want := "the tree has another hash for the row"; err == nil || !strings.Contains(said, want) {
				t.Errorf("audit verify says, without %q: %v\n%s", want, err, said)
			}
			for place, hashes := range were {
				change(t, db, `UPDATE audit_tiles SET hashes = $1 WHERE level = $2 AND place = $3`, hashes, place[0], place[1])
			}
			if said, err := k.by.Run("audit", "verify", "--data-dir", k.dataDir); err != nil {
				t.Errorf("audit verify says: %v\n%s", err, said)
			}
		},
	}
}

// tiles returns the hashes of the tree, by level and position.
func tiles(t *testing.T, db *sql.DB) map[[2]int64][]byte {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT level, place, hashes FROM audit_tiles`)
	rig.Must(t, err)
	defer rows.Close()
	all := map[[2]int64][]byte{}
	for rows.Next() {
		var at [2]int64
		var hashes []byte
		rig.Must(t, rows.Scan(&at[0], &at[1], &hashes))
		all[at] = hashes
	}
	rig.Must(t, rows.Err())
	return all
}

// authorityEnds stops the key server until its CA is close to its expiry.
func authorityEnds(t *testing.T) startedEnvironment {
	k := serve(t, settable)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			k.stop(t)
			rig.Must(t, os.RemoveAll(k.dataDir))
			rig.Must(t, program.SetClock(k.dataDir, -9*365*24*time.Hour-250*24*time.Hour))
			k.start(t, k.args...)
			k.stop(t)
			rig.Must(t, program.SetClock(k.dataDir, 0))
			k.start(t, k.args...)
		},
		cure: func(t *testing.T) {
			_, err := k.admin(t).ActivateAuthority(t.Context(), schema.ActivateAuthorityRequest{Early: true})
			rig.Must(t, err)
		},
	}
}

// archiveFails makes the directory of the audit archive unusable.
func archiveFails(t *testing.T) startedEnvironment {
	archive := filepath.Join(t.TempDir(), "archive")
	rig.Must(t, os.Mkdir(archive, 0o700))
	k := serve(t, built, "--audit-archive", "file://"+archive)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			k.stop(t)
			rig.Must(t, os.RemoveAll(archive))
			k.start(t, k.args...)
		},
		cure: func(t *testing.T) { rig.Must(t, os.Mkdir(archive, 0o700)) },
	}
}

// gone replaces a directory with a file.
func gone(t *testing.T, dir string) (back func()) {
	t.Helper()
	aside := dir + ".aside"
	rig.Must(t, os.Rename(dir, aside))
	rig.Must(t, os.WriteFile(dir, nil, 0o600))
	return func() {
		rig.Must(t, os.Remove(dir))
		rig.Must(t, os.Rename(aside, dir))
	}
}

// backupLate makes the destination of the backups unwritable.
func backupLate(t *testing.T) startedEnvironment {
	place := filepath.Join(t.TempDir(), "backups")
	whose := recipient(t)
	k := serve(t, built, "--backup-every", "1m", "--backup-to", place, "--backup-recipient", whose)
	rig.Soon(t, "a backup is made", func() bool { return strings.Contains(k.Log(), "backup made") })
	var back func()
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			k.stop(t)
			back = gone(t, place)
			k.start(t, k.args...)
		},
		cure: func(t *testing.T) {
			rig.Soon(t, "the log says it", func() bool { return strings.Contains(k.Log(), "no backup can be made") })
			_, err := built.Run("backup", "--server", "https://"+k.Address, "--ca-file", filepath.Join(k.dataDir, "ca.crt"),
				"--password-file", filepath.Join(k.dataDir, "bootstrap-password"), "--recipient", whose, "--to", filepath.Join(t.TempDir(), "elsewhere"))
			rig.Must(t, err)
			back()
		},
	}
}

// replicationBehind makes the destination of the replica unwritable.
func replicationBehind(t *testing.T) startedEnvironment {
	place := filepath.Join(t.TempDir(), "replica")
	k := serve(t, built, "--replicate-to", place, "--replicate-recipient", recipient(t))
	var back func()
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			k.stop(t)
			back = gone(t, place)
			k.start(t, k.args...)
		},
		cure: func(t *testing.T) {
			rig.Soon(t, "the log says it", func() bool { return strings.Contains(k.Log(), "the database is not replicated") })
			back()
		},
	}
}

// sinkBehind has a receiver that acknowledges no row of the last quarter of an hour.
func sinkBehind(t *testing.T) startedEnvironment {
	var away atomic.Bool
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(receiver.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	rig.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}), 0o600))
	k := serve(t, settable, "--audit-sink", receiver.URL+"/rows?ca="+ca)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			away.Store(true)
			k.stop(t)
			rig.Must(t, os.RemoveAll(k.dataDir))
			rig.Must(t, program.SetClock(k.dataDir, -15*time.Minute))
			k.start(t, k.args...)
			k.stop(t)
			rig.Must(t, program.SetClock(k.dataDir, 0))
			k.start(t, k.args...)
		},
		cure: func(t *testing.T) {
			rig.Soon(t, "the log says it", func() bool { return strings.Contains(k.Log(), "an audit sink does not accept rows") })
			away.Store(false)
		},
	}
}

// fillsUp fills the volume. The cure makes the volume larger.
func fillsUp(t *testing.T) startedEnvironment {
	disk := t.TempDir()
	const size = "mode=0700,size="
	if err := rig.Tmpfs(t, disk, size+"128m"); err != nil {
		t.Skipf("this machine does not let a test mount a small volume: %v", err) // another volume has other users
	}
	k := serveIn(t, disk, built)
	return startedEnvironment{
		scraped: []*keyServer{k},
		provoke: func(t *testing.T) {
			rig.Must(t, os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 100<<20), 0o600))
		},
		cure: func(t *testing.T) { rig.Must(t, rig.ChangeTmpfs(disk, size+"512m")) },
	}
}
