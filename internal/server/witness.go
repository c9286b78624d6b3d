package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/witness"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Witnessing configures the witnesses of this key server's log. It also configures the logs for which this key server
// is a witness.
type Witnessing struct {
	Witnesses      []string // URL=VKEY
	WitnessQuorum  int
	WitnessClients []string // VKEY
}

func (w *Witnessing) validateWitnesses() error {
	seen := map[string]bool{}
	for _, spec := range w.Witnesses {
		r, err := witness.ParseRemote(spec, nil)
		if err != nil {
			return fmt.Errorf("--witness: %w", err)
		}
		at, _, _ := strings.Cut(spec, "=")
		if u, err := url.Parse(at); err != nil || u.Scheme != "https" && !isLoopback(u.Hostname()) {
			return fmt.Errorf("--witness: %s must be an https URL or have a loopback address, because others on the network can forge responses over http", urltext.Origin(at))
		}
		if seen[r.Verifier().Name()] {
			return fmt.Errorf("--witness: two witnesses have the name %s; give each once", r.Verifier().Name())
		}
		seen[r.Verifier().Name()] = true
	}
	switch {
	case len(w.Witnesses) > witness.MaxWitnesses:
		return fmt.Errorf("--witness is given %d times; give at most %d witnesses", len(w.Witnesses), witness.MaxWitnesses)
	case w.WitnessQuorum < 0 || w.WitnessQuorum > witness.MaxWitnesses:
		return fmt.Errorf("--witness-quorum is %d; it must be from 0 to %d", w.WitnessQuorum, witness.MaxWitnesses)
	case len(w.WitnessClients) > maxWitnessClients:
		return fmt.Errorf("--witness-client is given %d times; give at most %d logs in addition to those of peers", len(w.WitnessClients), maxWitnessClients)
	}
	if _, err := witness.New(witness.Config{Clients: w.WitnessClients}); err != nil {
		return fmt.Errorf("--witness-client: %w", err)
	}
	return nil
}

const maxWitnessClients = 64

func (s *Server) openWitness(ctx context.Context, alarm *conflictAlarm) (*witness.Witness, error) {
	signer, err := bootstrap.WitnessSigner(ctx, s.bootstrap())
	if err != nil {
		return nil, fmt.Errorf("read the key of the witness: %w", err)
	}
	return witness.New(witness.Config{Store: s.store, Signer: signer, Own: s.tree.Key(), Clients: s.cfg.WitnessClients, Clock: s.cfg.Clock, Alarm: alarm.raise})
}

// openFeed starts two loops: one sends the checkpoints of the audit tree to the witnesses, the other fetches the keys
// of peers that are witnesses.
func (s *Server) openFeed() (*witness.Feed, error) {
	var remotes []witness.Remote
	client := witness.Client()
	for _, spec := range s.cfg.Witnesses {
		r, err := witness.ParseRemote(spec, client)
		if err != nil {
			return nil, err
		}
		remotes = append(remotes, r)
	}
	f := witness.NewFeed(witness.FeedConfig{
		Store: s.store, Tree: s.tree, Key: s.tree.Signer.Verifier, Remotes: remotes, Quorum: s.cfg.WitnessQuorum, Interval: s.tree.Interval, Clock: s.cfg.Clock, Logger: s.cfg.Logger,
		Peers: func(ctx context.Context) ([]witness.Remote, error) { return s.cosigner.Peers(ctx, s.peers) },
		Alarm: func(problem string) { s.alarm.raise(rowmac.Finding{Table: tableAuditTree, Problem: problem}) },
	})
	s.background(f.Run)
	s.background((&peerKeyFetcher{s.cosigner, s.store, s.peers, s.tree.Interval, s.cfg.Logger, map[keyserver.SystemID]time.Time{}}).run)
	return f, nil
}

type peerKeyFetcher struct {
	witness *witness.Witness
	store   *sqlstore.Store
	peers   *peer.Client
	every   time.Duration
	logger  *slog.Logger
	asked   map[keyserver.SystemID]time.Time // time of the last successful request
}

// askKeysAgain is how long after a success the keys of a peer are fetched again.
const askKeysAgain = time.Minute

func (i *peerKeyFetcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := i.store.TrustedServers(ctx)
		logs, failed := i.store.WitnessedLogs(ctx)
		if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
			i.logger.Warn("cannot read the list of peers that are witnesses", "error", err)
		}
		known := map[keyserver.SystemID]bool{}
		for _, l := range logs {
			known[l.System] = true
		}
		i.ask(ctx, list, known)
		wait := time.NewTimer(i.every)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}

// ask requests the keys of all witnesses concurrently, because a request to an unreachable witness takes long. known
// contains the peers whose keys are stored. A peer that was registered again is not in known.
func (i *peerKeyFetcher) ask(ctx context.Context, list []keyserver.TrustedServer, known map[keyserver.SystemID]bool) {
	var all errgroup.Group
	all.SetLimit(witness.MaxWitnesses)
	answered := make([]bool, len(list))
	now := time.Now()
	for n, p := range list {
		if !p.Witness || known[p.System] && now.Sub(i.asked[p.System]) < askKeysAgain {
			continue
		}
		all.Go(func() error {
			keys, err := i.peers.AuditKeys(ctx, p)
			if err == nil {
				err = i.witness.Learn(ctx, p.System, keys)
			}
			if err != nil && ctx.Err() == nil {
				i.logger.Debug("a peer that is a witness did not return its keys, or returned other keys than before", "peer", p.System, "error", err)
			}
			answered[n] = err == nil
			return nil
		})
	}
	_ = all.Wait() // the functions return no errors
	for n, p := range list {
		if answered[n] {
			i.asked[p.System] = now
		}
		if !p.Witness {
			delete(i.asked, p.System)
		}
	}
}

// conflictAlarm reports conflicts of witnessed logs in the process log, in a metric and in an audit row. Each conflict
// is reported at most once per interval.
type conflictAlarm struct {
	cfg     Config
	rows    *audit.Writer
	limiter *reportLimiter
	waiting chan keyserver.WitnessedLog
	found   *prometheus.CounterVec
}

func newConflictAlarm(cfg Config, rows *audit.Writer, every time.Duration) *conflictAlarm {
	a := &conflictAlarm{
		cfg: cfg, rows: rows, limiter: newReportLimiter(every), waiting: make(chan keyserver.WitnessedLog, maxAlarms),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "keyserver_witness_conflicts_total", Help: "Conflicts of witnessed logs: forked, rolled back, forged, or with another key.",
		}, []string{"conflict"}),
	}
	for _, c := range keyserver.LogConflicts {
		a.found.WithLabelValues(string(c)) // creates the series before the first conflict
	}
	return a
}

// raise reports one conflict. It does not block and does not use the store.
func (a *conflictAlarm) raise(l keyserver.WitnessedLog) {
	a.found.WithLabelValues(string(l.Conflict)).Inc()
	if !a.limiter.due(l.Origin+" "+string(l.Conflict), a.cfg.Clock()) {
		return
	}
	a.cfg.Logger.Error("a witnessed log broke the rules of a log (see conflict); see docs/guides/witnesses.md",
		"log", l.Origin, "peer", l.System, "conflict", string(l.Conflict), "cosigned", l.Size)
	select {
	case a.waiting <- l:
	default:
	}
}

func (a *conflictAlarm) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-a.waiting:
			err := a.rows.Write(ctx, keyserver.AuditEntry{
				Operation: keyserver.AuditWitness, Outcome: keyserver.Refused, Reason: string(l.Conflict),
				Kind: keyserver.InternalSession, Principal: keyserver.PrincipalRef{System: l.System}, Object: l.Origin,
			})
			if err != nil {
				a.cfg.Logger.Error("cannot write the audit row of a log in conflict", "log", l.Origin, "error", err)
			}
		}
	}
}
