package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/archive"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/sink"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

func TestWhatNoArchiveIs(t *testing.T) {
	for reason, tc := range map[string]struct {
		url       string
		retention time.Duration
		want      string
	}{
		"rows that are nowhere else": {"", time.Hour * 24, "--audit-retention requires --audit-archive"},
		"gone before anybody looks":  {"file:///a", time.Minute, "--audit-retention is 1m0s; it must be at least 1h0m0s"},
		"the past":                   {"file:///a", -time.Hour, "at least"},
		"a path":                     {"/var/archive", 0, "--audit-archive: the URL must be"},
		"a secret is not repeated":   {"ftp://user:secret@host", 0, "--audit-archive: the URL must be"},
		"none":                       {"", 0, ""},
		"for ever":                   {"s3://bucket?region=r", 0, ""},
		"90 days":                    {"file:///a", 90 * 24 * time.Hour, ""},
	} {
		c := Config{AuditArchive: tc.url, AuditRetention: tc.retention}
		err := c.validateArchive()
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret@")) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// TestRowsWaitForSinksAndWitnesses checks that rows are removed only after each configured sink has received
// them and a quorum has cosigned them.
func TestRowsWaitForSinksAndWitnesses(t *testing.T) {
	store, err := sqlstore.Open(t.Context(), sqlstore.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	targets, err := sink.Parse([]string{"https://near.example/events", "syslog+tls://far.example:6514"})
	if err != nil {
		t.Fatal(err)
	}
	none, both := &Server{}, &Server{cfg: Config{sinks: targets}}
	unasked := witness.NewFeed(witness.FeedConfig{Store: store})
	quorum := witness.NewFeed(witness.FeedConfig{Store: store, Quorum: 2})
	may := func(when string, s *Server, feed *witness.Feed, last int64, want bool) {
		t.Helper()
		if got, err := s.mayPrune(t.Context(), store, feed, last); err != nil || got != want {
			t.Errorf("%s, rows up to %d: %v, %v", when, last, got, err)
		}
	}
	may("nobody has to have them", none, unasked, 100, true)
	may("no sink has any, and none has begun", both, unasked, 1, false)
	holder, now := []byte("this process"), time.Now()
	newest := audit.TreeHead{Size: 100, At: now, Checkpoint: []byte("a checkpoint")}
	if grown, err := store.GrowAuditTree(t.Context(), 0, nil, newest, nil); err != nil || !grown {
		t.Fatal(grown, err)
	}
	send := func(name string, from, to int64) {
		t.Helper()
		if _, _, err := store.ClaimAuditSink(t.Context(), name, holder, 1, now, time.Minute); err != nil {
			t.Fatal(err)
		}
		if moved, err := store.MoveAuditSink(t.Context(), name, holder, from, to); err != nil || !moved {
			t.Fatal(moved, err)
		}
	}
	send(targets[0].Name, 0, 100)
	may("the other one is away", both, unasked, 1, false)
	send(targets[1].Name, 0, 99)
	may("it lacks a row", both, unasked, 100, false)
	may("it has these", both, unasked, 99, true)
	send(targets[1].Name, 99, 100)
	may("both have them", both, unasked, 100, true)

	may("nobody has cosigned", both, quorum, 1, false)
	for _, of := range []struct {
		size   int64
		quorum bool
	}{{99, true}, {100, false}} {
		head := audit.TreeHead{Size: of.size, At: now, Checkpoint: []byte("a checkpoint")}
		err := store.CosignAuditTree(t.Context(), head, func(stored []byte) ([]byte, bool, error) { return stored, of.quorum, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	may("the newest has no quorum yet", both, quorum, 100, false)
	may("the one before has", both, quorum, 99, true)
	may("and whoever is not asked for one does not wait", both, unasked, 100, true)
	send(targets[0].Name, 100, 101)
	may("one that is said to have more than there is has nothing", both, unasked, 1, false)
}

func TestArchiveMetricsAreNamedAsOthers(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	archive.New(archive.Config{Logger: slog.New(slog.DiscardHandler)}).Observe(registry)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n != 4 {
		t.Errorf("%d metrics, %v", n, err)
	}
}
