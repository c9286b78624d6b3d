// Package witness verifies that logs only grow. It also sends the checkpoints of this key server to its witnesses.
//
// As a witness (C2SP tlog-witness), the key server cosigns a checkpoint of a log if it continues the last one that was
// cosigned. It stores the checkpoint before it returns the cosignature. As a log, it sends each new checkpoint to its
// witnesses and stores their cosignatures.
package witness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Store is the part of a database that a witness uses.
type Store interface {
	WitnessedLogs(ctx context.Context) ([]keyserver.WitnessedLog, error)
	// UpdateWitnessedLog changes the record of a log, or creates one that has only the origin. Two changes never run at
	// the same time, even on different replicas.
	UpdateWitnessedLog(ctx context.Context, origin string, change func(l *keyserver.WitnessedLog) error) error
	TrustedServers(ctx context.Context) ([]keyserver.TrustedServer, error)
}

// Config is the configuration of a Witness. All fields are required except Clients.
type Config struct {
	Store  Store
	Signer *Signer
	// Own is the key that verifies the audit tree of this key server.
	Own keyserver.AuditKey
	// Clients are the keys of logs that do not belong to peers.
	Clients []string
	Clock   func() time.Time
	// Alarm is called for each request that shows a conflict. Alarm must limit the number of messages itself.
	Alarm func(keyserver.WitnessedLog)
}

// Witness cosigns the checkpoints of logs. It is safe for concurrent use.
type Witness struct {
	Config
	clients map[string]client // by origin
}

type client struct {
	verifier note.Verifier
	key      string
}

// New returns a witness. It fails if a key of Clients is invalid.
func New(c Config) (*Witness, error) {
	w := &Witness{Config: c, clients: map[string]client{}}
	for _, key := range c.Clients {
		v, err := note.NewVerifier(key)
		if err != nil {
			return nil, fmt.Errorf("%q is not a key in the C2SP signed-note format: %w", key, err)
		}
		if _, ok := w.clients[v.Name()]; ok {
			return nil, fmt.Errorf("the log %s has two keys; give one", v.Name())
		}
		w.clients[v.Name()] = client{v, key}
	}
	return w, nil
}

// Anonymous is the sender of a checkpoint if only the signature of the checkpoint authenticates it.
const Anonymous keyserver.SystemID = 0

// AddCheckpoint cosigns a checkpoint and returns the signature lines. from is the peer that sends the checkpoint, or
// Anonymous.
//
// It fails with BAD_REQUEST if the old size is greater than the checkpoint's, with NOT_FOUND if the log is not known,
// with CHECKPOINT_UNSIGNED, a keyserver.StaleCheckpointError, or CHECKPOINT_INCONSISTENT.
func (w *Witness) AddCheckpoint(ctx context.Context, from keyserver.SystemID, r Request) (lines []byte, err error) {
	origin, _, _ := strings.Cut(string(r.Checkpoint), "\n")
	log, verifier, err := w.known(ctx, origin)
	if err != nil {
		return nil, err
	}
	if from != Anonymous && log.System != from {
		return nil, unknown(origin)
	}
	head, err := tree.Open(r.Checkpoint, verifier)
	if err != nil {
		refusal := fault.New(fault.CheckpointUnsigned, "the checkpoint of %s is not valid, or is not signed by its key", origin)
		return nil, errors.Join(refusal, w.conflict(ctx, log, from, keyserver.LogForged))
	}
	var refusal error
	var after keyserver.WitnessedLog
	err = w.Store.UpdateWitnessedLog(ctx, origin, func(l *keyserver.WitnessedLog) error {
		if l.Key != log.Key { // the log has got a new key, for example in --witness-client
			*l = log
		}
		var found keyserver.LogConflict
		if found, refusal = judge(*l, r, head.Size, head.Root, from); found != "" {
			l.Conflict, l.ConflictAt = found, w.now()
		}
		if refusal == nil {
			l.Size, l.Root, l.SeenAt = head.Size, head.Root, w.now()
		}
		after = *l
		after.Conflict = found
		return nil
	})
	if err != nil {
		return nil, err
	}
	if after.Conflict != "" {
		w.Alarm(after)
	}
	if refusal != nil {
		return nil, refusal
	}
	text, _, _ := strings.Cut(string(r.Checkpoint), "\n\n")
	return w.Signer.cosign(text + "\n")
}

// Answer decodes a request in the format of C2SP tlog-witness and calls AddCheckpoint as Anonymous.
func (w *Witness) Answer(ctx context.Context, body []byte) ([]byte, error) {
	r, err := ParseRequest(body)
	if err != nil {
		return nil, err
	}
	return w.AddCheckpoint(ctx, Anonymous, r)
}

// AuditKeys returns the public keys of this key server for its peers.
func (w *Witness) AuditKeys() keyserver.AuditKeys {
	return keyserver.AuditKeys{AuditKey: w.Own, Witness: w.Signer.Key}
}

func (w *Witness) now() time.Time { return w.Clock().UTC().Truncate(time.Microsecond) }

// known returns a log that may request cosignatures, and the verifier of its signatures.
func (w *Witness) known(ctx context.Context, origin string) (keyserver.WitnessedLog, note.Verifier, error) {
	if c, ok := w.clients[origin]; ok {
		return keyserver.WitnessedLog{Origin: origin, Key: c.key}, c.verifier, nil
	}
	logs, err := w.Store.WitnessedLogs(ctx)
	if err != nil {
		return keyserver.WitnessedLog{}, nil, err
	}
	named := func(l keyserver.WitnessedLog) bool { return l.Origin == origin }
	if !slices.ContainsFunc(logs, named) { // most unknown origins end here
		return keyserver.WitnessedLog{}, nil, unknown(origin)
	}
	if logs, err = w.peerLogs(ctx, logs); err != nil {
		return keyserver.WitnessedLog{}, nil, err
	}
	if i := slices.IndexFunc(logs, named); i >= 0 {
		v, err := note.NewVerifier(logs[i].Key)
		return logs[i], v, err
	}
	return keyserver.WitnessedLog{}, nil, unknown(origin)
}

// peerLogs returns the logs of peers that are marked as witnesses.
func (w *Witness) peerLogs(ctx context.Context, logs []keyserver.WitnessedLog) ([]keyserver.WitnessedLog, error) {
	peers, err := w.Store.TrustedServers(ctx)
	if err != nil {
		return nil, err
	}
	var list []keyserver.WitnessedLog
	for _, l := range logs {
		for _, p := range peers {
			if p.Witness && p.System == l.System {
				list = append(list, l)
			}
		}
	}
	return list, nil
}

func unknown(origin string) error {
	return fault.New(fault.NotFound, "this key server is not a witness of the log %q; for the log of a peer, set witness in its record on both sides; for another log, give its key as --witness-client", bounded(origin))
}

// bounded truncates a text from a client, for use in a message.
func bounded(s string) string { return strings.ToValidUTF8(s[:min(len(s), 100)], "") }

// judge decides about a checkpoint that the log has signed. It reports a conflict only if the log's signature proves
// the conflict or the peer itself sent the request, because any client can send an old checkpoint or an invalid proof.
func judge(l keyserver.WitnessedLog, r Request, size int64, root tlog.Hash, from keyserver.SystemID) (keyserver.LogConflict, error) {
	inconsistent := fault.New(fault.CheckpointInconsistent, "the checkpoint of %d rows does not continue the checkpoint of %d rows", size, l.Size)
	switch {
	case size == l.Size && root != tlog.Hash(l.Root) && l.Size > 0:
		return keyserver.LogForked, inconsistent
	case r.Old > size:
		refusal := fault.New(fault.BadRequest, "old: %d must not exceed the size of the checkpoint, %d", r.Old, size)
		if from != Anonymous && r.Old == l.Size {
			return keyserver.LogRolledBack, refusal
		}
		return "", refusal
	case r.Old != l.Size:
		return "", keyserver.StaleCheckpointError{Size: l.Size}
	case r.Old == 0 && len(r.Proof) > 0, size == 0 && root != emptyRoot:
		return "", inconsistent
	case r.Old == 0:
		return "", nil
	case tlog.CheckTree(r.Proof, size, root, l.Size, l.Root) != nil:
		if from != Anonymous {
			return keyserver.LogForked, inconsistent
		}
		return "", inconsistent
	}
	return "", nil
}

var emptyRoot, _ = tlog.TreeHash(0, nil)

// conflict stores a conflict of a peer's log and raises the alarm. If from is Anonymous, it does nothing.
func (w *Witness) conflict(ctx context.Context, log keyserver.WitnessedLog, from keyserver.SystemID, found keyserver.LogConflict) error {
	if from == Anonymous {
		return nil
	}
	var after keyserver.WitnessedLog
	err := w.Store.UpdateWitnessedLog(ctx, log.Origin, func(l *keyserver.WitnessedLog) error {
		if l.Key == log.Key {
			l.Conflict, l.ConflictAt = found, w.now()
		}
		after = *l
		return nil
	})
	if err == nil {
		w.Alarm(after)
	}
	return err
}

// Logs returns the logs that are witnessed, with their last known state.
func (w *Witness) Logs(ctx context.Context) ([]keyserver.WitnessedLog, error) {
	all, err := w.Store.WitnessedLogs(ctx)
	if err != nil {
		return nil, err
	}
	list, err := w.peerLogs(ctx, all)
	if err != nil {
		return nil, err
	}
	for origin, c := range w.clients {
		l := keyserver.WitnessedLog{Origin: origin, Key: c.key}
		for _, seen := range all {
			if seen.Origin == origin && seen.Key == c.key {
				l = seen
			}
		}
		list = append(list, l)
	}
	sortLogs(list)
	return list, nil
}
