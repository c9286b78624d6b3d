package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
)

func TestDatabasesAreApart(t *testing.T) {
	for range 2 {
		execute(t, pgtest.Database(t), `CREATE TABLE mine (n INTEGER)`) // fails if there is one already
	}
}

func TestACrashLosesNothing(t *testing.T) {
	cluster := pgtest.Start(t)
	url := cluster.Database(t)
	execute(t, url, `CREATE TABLE mine (n INTEGER)`)
	cluster.Kill(t)
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a killed server answers", conn.Close(t.Context()))
	}
	cluster.Restart(t)
	execute(t, url, `INSERT INTO mine VALUES (1)`)
}

func execute(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func TestAStandbyTakesOver(t *testing.T) {
	primary := pgtest.Start(t)
	url := primary.Database(t)
	execute(t, url, `CREATE TABLE mine (n INTEGER)`)
	standby := primary.Standby(t, "second")
	either := pgtest.On(url, standby, primary) // the first one refuses writes
	execute(t, either, `INSERT INTO mine VALUES (1)`)
	primary.Kill(t)
	standby.Promote(t)
	execute(t, either, `INSERT INTO mine VALUES (2)`)
}
