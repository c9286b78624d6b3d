package engine

import (
	"context"
	"io"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Backups makes copies of the entire state; package backup implements it.
type Backups interface {
	Write(ctx context.Context, recipient string, to io.Writer) error
}

// CreateBackup implements keyserver.Backups. The audit row is durable before the copy begins, so that the copy includes
// the audit row.
func (e *Engine) CreateBackup(ctx context.Context, by keyserver.Caller, recipient string, to io.Writer) error {
	return e.Perform(ctx, gate.Request{By: by, Op: keyserver.OpMakeBackup, Object: keyserver.ShortRecipient(recipient)}, func() error {
		return e.Backups.Write(ctx, recipient, to)
	})
}
