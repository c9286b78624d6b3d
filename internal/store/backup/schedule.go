package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// lookEvery is the longest interval between checks whether a backup is due.
	lookEvery = time.Minute
	// maxBackoff is the maximum pause after failures.
	maxBackoff = 15 * time.Minute
	// makeTime is the time limit of one backup.
	makeTime = 6 * time.Hour
	// lateAfter is how many intervals Every may pass without a backup before Late reports that.
	lateAfter = 2
)

// Schedule makes backups at intervals, and removes old ones. Every field is required except
// Keep, the number of backups to keep: 0 keeps all.
type Schedule struct {
	Maker     *Maker
	Every     time.Duration
	Place     string
	Keep      int
	Recipient string
	Clock     func() time.Time
	Logger    *slog.Logger
	// Record writes the audit row for a backup.
	Record func(ctx context.Context, outcome keyserver.Outcome, name string) error

	place   Place // its Store is nil until it was opened
	begun   time.Time
	waits   time.Duration // pause after a failure
	failing error
	strange string // name of the object that the last call of kept ignored

	failures   atomic.Int64
	last, size atomic.Int64  // Unix time and size of the newest backup, from any replica
	took       atomic.Uint64 // duration in seconds, as bits of a float64
	late       atomic.Pointer[string]
}

// Run calls Pass repeatedly until ctx ends. On PostgreSQL, each replica calls Run. One replica makes a backup; the
// other replicas then find that none is due.
func (s *Schedule) Run(ctx context.Context) {
	s.begun = s.Clock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			if s.place.Store != nil {
				_ = s.place.Close() // no object is open
			}
			return
		case <-timer.C:
		}
		timer.Reset(s.pause(ctx, s.Pass(ctx)))
	}
}

// pause gets the result of Pass. It logs the first failure and the next success, and returns the time until the next
// call of Pass.
func (s *Schedule) pause(ctx context.Context, err error) time.Duration {
	every := min(lookEvery, s.Every/10)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if s.failing != nil {
			s.Logger.Info("backups are made again")
		}
		s.failing, s.waits = nil, 0
	default:
		if s.failing == nil {
			s.Logger.Error("no backup can be made", "error", err)
		}
		s.failures.Add(1)
		s.failing, s.waits = err, min(max(2*s.waits, every), maxBackoff)
	}
	s.judge()
	return max(s.waits, every)
}

// judge updates the result of Late.
func (s *Schedule) judge() {
	since := s.begun
	if at := s.last.Load(); at > 0 {
		since = time.Unix(at, 0)
	}
	if s.Clock().Sub(since) <= lateAfter*s.Every {
		s.late.Store(nil)
		return
	}
	text := fmt.Sprintf("the newest backup in --backup-to is of %s, but one is due every %s; the log of the key server says why there is none", since.UTC().Format(time.RFC3339), s.Every)
	if s.last.Load() == 0 {
		text = fmt.Sprintf("no backup in --backup-to is known, but one is due every %s; the log of the key server says why", s.Every)
	}
	s.late.Store(&text)
}

// Late returns a message if the newest backup is too old, otherwise "".
func (s *Schedule) Late() string {
	if text := s.late.Load(); text != nil {
		return *text
	}
	return ""
}

// Pass makes a backup if one is due, and removes the oldest backups if there are more than Keep.
func (s *Schedule) Pass(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	if s.place.Store == nil {
		if s.place, err = OpenPlace(ctx, s.Place, true); err != nil {
			return err
		}
	}
	if err := s.place.Claim(ctx, s.Maker.System, s.Maker.Key); err != nil {
		return fmt.Errorf("--backup-to: %w", err)
	}
	due, err := s.due(ctx)
	if err != nil || !due {
		return err
	}
	name, began := Name(s.Maker.System, s.Clock()), s.Clock()
	recorded := false
	_, err = s.place.Save(ctx, name, func(w io.Writer) error {
		return s.Maker.write(ctx, s.Recipient, w, func() error {
			err := s.Record(ctx, keyserver.Allowed, name)
			recorded = err == nil
			return err
		})
	})
	if fault.CodeOf(err) == fault.Overloaded && !recorded {
		return nil // another replica or a request is making a backup
	}
	if err != nil {
		if recorded {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			err = errors.Join(err, s.Record(ctx, keyserver.Failed, name))
		}
		return err
	}
	took := s.Clock().Sub(began)
	s.took.Store(math.Float64bits(took.Seconds()))
	s.Logger.Info("backup made", "name", name, "took", took.String())
	return s.prune(ctx)
}

// due reports whether a backup is due, from the age of the newest stored backup of any replica.
func (s *Schedule) due(ctx context.Context) (bool, error) {
	all, err := s.kept(ctx)
	if err != nil {
		return false, err
	}
	s.note(all)
	if len(all) == 0 {
		return true, nil
	}
	age := s.Clock().Sub(all[len(all)-1].Begun)
	return age >= s.Every || age < 0, nil // a time in the future must not stop backups
}

// kept returns the backups of this key server. It ignores empty objects, and backups with a
// time in the future, which come from a wrong clock or another program. Ignored backups are
// never the newest backup, and do not count for Keep.
func (s *Schedule) kept(ctx context.Context) ([]Entry, error) {
	all, err := s.place.List(ctx, s.Maker.System)
	if err != nil {
		return nil, err
	}
	strange := ""
	all = slices.DeleteFunc(all, func(k Entry) bool {
		if k.Size > 0 && k.Begun.Sub(s.Clock()) <= clockAhead {
			return false
		}
		strange = k.Name
		return true
	})
	if strange != s.strange && strange != "" {
		s.Logger.Warn("an object in --backup-to has the name of a backup, but is empty or has a time in the future; it is ignored: remove it", "name", strange)
	}
	s.strange = strange
	return all, nil
}

func (s *Schedule) note(all []Entry) {
	if len(all) > 0 {
		newest := all[len(all)-1]
		s.last.Store(newest.Begun.Unix())
		s.size.Store(newest.Size)
	}
}

// prune removes the oldest backups of this key server until Keep remain.
func (s *Schedule) prune(ctx context.Context) error {
	all, err := s.kept(ctx)
	if err != nil {
		return err
	}
	s.note(all)
	if s.Keep == 0 {
		return nil
	}
	for ; len(all) > s.Keep; all = all[1:] {
		for _, name := range []string{all[0].Name, KeyName(all[0].Name)} {
			if err := s.place.Delete(ctx, name); err != nil {
				return fmt.Errorf("remove the backup %s: %w", name, err)
			}
		}
		s.Logger.Info("backup removed", "name", all[0].Name, "keep", s.Keep)
	}
	return nil
}

// Observe registers the metrics of backups.
func (s *Schedule) Observe(r prometheus.Registerer) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("keyserver_backup_last_success_timestamp_seconds", "Time when the newest backup in --backup-to was started; 0 if none is known.", func() float64 { return float64(s.last.Load()) })
	gauge("keyserver_backup_last_size_bytes", "Size of the newest backup in --backup-to.", func() float64 { return float64(s.size.Load()) })
	gauge("keyserver_backup_last_duration_seconds", "Duration of the last backup that this process made for --backup-every.", func() float64 { return math.Float64frombits(s.took.Load()) })
	gauge("keyserver_backup_interval_seconds", "Interval of backups (--backup-every).", s.Every.Seconds)
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "keyserver_backup_failures_total", Help: "Failed backups of this process for --backup-every.",
	}, func() float64 { return float64(s.failures.Load()) }))
}
