package auditrows

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// sharedChain is the chain of this replica in a PostgreSQL database. Other replicas write other chains. One sequence
// numbers the rows of all chains. The row of the sequence is locked from the assignment of a number to the commit. To
// keep this time short, Append makes at most one round trip to the database between the two, and none if it guesses the
// number correctly.
type sharedChain struct {
	chain   int64
	trail   *AuditLog
	dialect *postgres.Database
	claim   *postgres.Claim
	session *sqldb.Session // the session of claim; behind a pooler, a separate session

	// next is the guessed next sequence number. The guess is right if no other replica has written. 0 means unknown.
	// appendsWithoutGuess is the number of further appends without a guess, because the last guess was wrong.
	next                int64
	appendsWithoutGuess int

	uses map[keyserver.ID]int64 // memory that Append uses again
}

// guessAgain is the number of appends without a guess after a wrong guess. While other
// replicas write, most guesses are wrong, and each wrong guess costs a round trip.
const guessAgain = 64

// maxLiveChains limits the search for a free chain. It is more than the number of replicas
// that a database can serve.
const maxLiveChains = 1024

// claimChain implements kind. It claims a chain by a lock that lasts until its connection ends. It writes the chain
// only on that connection, so a replica that has lost the lock cannot write. Behind a pooler, it writes the chain on
// another connection, so a replica may write after it has lost the lock. In both cases, Append fails if another replica
// has appended a row to the chain.
func (p shared) claimChain(ctx context.Context) (audit.Chain, error) {
	for chain := int64(1); chain <= maxLiveChains; chain++ {
		held, err := p.d.Claim(ctx, p.db.Pools().Write, chain, false)
		if err != nil {
			return nil, sqldb.Translate(p.d, err)
		}
		if held == nil {
			continue
		}
		c := &sharedChain{chain: chain, trail: p.AuditLog, dialect: p.d, claim: held, session: held.Session, uses: map[keyserver.ID]int64{}}
		if p.d.Pooled {
			if c.session, err = sqldb.OpenSession(ctx, p.d, p.db.Pools().Write); err != nil {
				held.Release()
				return nil, err
			}
		}
		if err := c.create(ctx); err != nil {
			_ = c.Release()
			return nil, err
		}
		return c, nil
	}
	return nil, fmt.Errorf("each of the %d audit chains has a running writer", maxLiveChains)
}

// recoverRows implements kind. There is nothing to recover, because a row is durable in
// its table.
func (p shared) recoverRows(context.Context) error { return nil }

func (p shared) unfilled(ctx context.Context) (audit.Snapshot, []keyserver.AuditEntry, error) {
	snapshot, err := p.reads.AuditSnapshot(ctx)
	return snapshot, nil, err
}

// held returns an error if a connection of the chain is lost.
func (c *sharedChain) held() error {
	if c.session.Lost || c.claim.Session.Lost {
		return sqldb.Unavailable(errors.New("the connection that holds the audit chain is lost"))
	}
	return nil
}

// create limits the time that the session waits for locks. It inserts the row of a new
// chain.
func (c *sharedChain) create(ctx context.Context) error {
	if !c.dialect.Pooled {
		if _, err := c.session.Run.ExecContext(ctx, "SET lock_timeout = "+postgres.LockPatience); err != nil {
			return sqldb.Translate(c.dialect, err)
		}
	}
	return c.session.Transact(ctx, func(in sqldb.Statements) error {
		_, err := in.Exec(ctx, `INSERT INTO audit_chains (chain, position, head) VALUES ($1, 0, $2)
			ON CONFLICT (chain) DO NOTHING`, c.chain, make([]byte, 32))
		return err
	})
}

// Outdated reports whether the chain has to be claimed again on a new connection.
func (c *sharedChain) Outdated() bool { return !c.session.Lost && c.dialect.Outdated(c.session.Conn) }

// Head implements audit.Chain. It drops an outdated session.
func (c *sharedChain) Head(ctx context.Context) (audit.Head, error) {
	head := audit.Head{Chain: c.chain}
	if c.Outdated() {
		c.session.Drop()
	}
	if err := c.held(); err != nil {
		return head, err
	}
	if !c.claim.Held(ctx) {
		return head, c.held()
	}
	err := sqldb.Statements{Run: c.session.Run, Dialect: c.dialect}.Row(ctx, `SELECT position, head FROM audit_chains WHERE chain = $1`,
		[]any{c.chain}, &head.Position, sqldb.IntoHash(&head.Hash))
	return head, err
}

// Release implements audit.Chain.
func (c *sharedChain) Release() error {
	c.claim.Release()
	if c.session != c.claim.Session && !c.session.Lost {
		return c.session.Close()
	}
	return nil
}

const (
	waitForLock = `SELECT set_config('lock_timeout', $1, true)`
	takeNumbers = `UPDATE sequences SET value = value + $1 WHERE name = 'audit' RETURNING value`
	// takeGuessed and moveHead divide by zero if they change no row, so that the batch fails.
	takeGuessed = `WITH taken AS (UPDATE sequences SET value = value + $1 WHERE name = 'audit' AND value = $2 RETURNING 1)
		SELECT 1 / count(*) FROM taken`
	moveHead = `WITH moved AS (UPDATE audit_chains SET position = $1, head = $2 WHERE chain = $3 AND position = $4 AND head = $5 RETURNING 1)
		SELECT 1 / count(*) FROM moved`
	addUses = `INSERT INTO key_uses (key_id, uses, last_used_at) SELECT key, uses, $3 FROM unnest($1::bytea[], $2::bigint[]) AS u(key, uses) ORDER BY key
		ON CONFLICT (key_id) DO UPDATE SET uses = key_uses.uses + excluded.uses, last_used_at = excluded.last_used_at`
)

// Append implements audit.Chain. It waits for the lock of the sequence until ctx ends.
func (c *sharedChain) Append(ctx context.Context, after audit.Head, rows []keyserver.AuditEntry, seal func(first int64) audit.Head) error {
	for {
		err := c.append(ctx, after, rows, seal)
		if !errors.Is(err, sqldb.ErrLockHeld) {
			return err
		}
		c.dialect.Evict(ctx, c.trail.db)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (c *sharedChain) append(ctx context.Context, after audit.Head, rows []keyserver.AuditEntry, seal func(first int64) audit.Head) error {
	if err := c.held(); err != nil {
		return err
	}
	err := c.session.Conn.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn() //nolint:errcheck,forcetypeassert // no other driver is behind this dialect
		done, err := c.guess(ctx, conn, after, rows, seal)
		if done || err != nil {
			return err
		}
		return c.appendNumbered(ctx, conn, after, rows, seal)
	})
	if err == nil {
		return nil
	}
	c.next = 0
	c.session.Rollback(ctx) // also drops an unusable connection
	if postgres.LockTimedOut(err) && !c.session.Lost {
		return sqldb.ErrLockHeld
	}
	if noRowChanged(err) {
		return fmt.Errorf("audit chain %d no longer ends at position %d", c.chain, after.Position)
	}
	return c.trail.db.Fail(ctx, err)
}

// guess appends rows in one batch, which is one transaction, with guessed sequence numbers. It returns false if it did
// not guess, or if another replica has used the numbers.
func (c *sharedChain) guess(ctx context.Context, conn *pgx.Conn, after audit.Head, rows []keyserver.AuditEntry, seal func(first int64) audit.Head) (bool, error) {
	if c.next == 0 || c.appendsWithoutGuess > 0 || c.dialect.Pooled { // behind a pooler, a transaction begins with several statements
		c.appendsWithoutGuess = max(c.appendsWithoutGuess-1, 0)
		return false, nil
	}
	var batch pgx.Batch
	batch.Queue(takeGuessed, len(rows), c.next-1)
	c.queue(&batch, after, seal(c.next), rows)
	err := send(ctx, conn, &batch)
	if errors.Is(err, errFirst) && noRowChanged(err) {
		c.appendsWithoutGuess = guessAgain
		return false, nil
	}
	if err == nil {
		c.next += int64(len(rows))
	}
	return true, err
}

// appendNumbered reserves the next sequence numbers with one round trip, and appends rows with another one.
func (c *sharedChain) appendNumbered(ctx context.Context, conn *pgx.Conn, after audit.Head, rows []keyserver.AuditEntry, seal func(first int64) audit.Head) error {
	var last int64
	var batch pgx.Batch
	for _, text := range c.dialect.Beginning() {
		batch.Queue(text)
	}
	if c.dialect.Pooled {
		batch.Queue(waitForLock, postgres.LockPatience)
	}
	batch.Queue(takeNumbers, len(rows)).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
	if err := send(ctx, conn, &batch); err != nil {
		return err
	}
	batch = pgx.Batch{}
	c.queue(&batch, after, seal(last-int64(len(rows))+1), rows)
	batch.Queue("COMMIT")
	if err := send(ctx, conn, &batch); err != nil {
		return err
	}
	c.next = last + 1
	return nil
}

// queue adds the statements that insert the rows, count the uses of keys, and update the last
// hash of the chain. The statements before them reserve the sequence numbers.
func (c *sharedChain) queue(batch *pgx.Batch, after, head audit.Head, rows []keyserver.AuditEntry) {
	for part := rows; len(part) > 0; {
		n := len(part)
		for _, size := range c.trail.insertRows.Sizes {
			if n >= size.Rows {
				args := make([]any, 0, size.Rows*c.trail.insertRows.Columns)
				for i := range size.Rows {
					args = appendAuditRow(args, &part[i])
				}
				batch.Queue(size.Text, args...)
				part = part[size.Rows:]
				break
			}
		}
	}
	countKeyUses(c.uses, rows)
	if len(c.uses) > 0 {
		keys, uses := make([][]byte, 0, len(c.uses)), make([]int64, 0, len(c.uses))
		for key, n := range c.uses {
			keys, uses = append(keys, key[:]), append(uses, n)
		}
		batch.Queue(addUses, keys, uses, rows[0].Time.UnixMicro())
	}
	batch.Queue(moveHead, head.Position, head.Hash[:], c.chain, after.Position, after.Hash[:])
}

// errFirst is joined to the error if the first statement of a batch fails.
var errFirst = errors.New("the first statement")

func send(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) (err error) {
	results := conn.SendBatch(ctx, batch)
	for i, q := range batch.QueuedQueries {
		if q.Fn != nil {
			err = q.Fn(results)
		} else {
			_, err = results.Exec()
		}
		if err != nil {
			_ = results.Close() // returns the same error
			if i == 0 {
				return errors.Join(err, errFirst)
			}
			return err
		}
	}
	return results.Close()
}

// noRowChanged reports whether a statement failed because it changed no row.
func noRowChanged(err error) bool { return postgres.CodeOf(err) == postgres.DivisionByZero }

// ChainsHeld returns the number of audit chains that have a running writer on PostgreSQL.
func (w Writes) ChainsHeld(ctx context.Context) (n int, err error) {
	if !w.in.Dialect.Shared() { // no other process uses the database
		return 0, nil
	}
	err = w.in.Row(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint = $1 AND objid::bigint BETWEEN 1 AND $2`, []any{postgres.LockClass, maxLiveChains}, &n)
	return n, err
}
