package sqlstore

import "github.com/keyserver-operator/keyserver-operator/internal/audit/journal"

// WithJournal is for the bounds and faults of a journal.
func (c Config) WithJournal(o journal.Options) Config {
	c.journal = o
	return c
}
