package httpapi

import (
	"context"
	"errors"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// readChanges waits until there is a change, the request ends or the server drains. A draining server returns an empty
// page, so that the client sends its next request to another server.
func readChanges(a *API, ctx context.Context, c call, in schema.ChangesQuery) (schema.ChangePage, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(a.draining, stop)()

	var after int64
	if in.After != nil {
		after = *in.After
	}
	var wait time.Duration
	if in.Wait != nil {
		wait = time.Duration(*in.Wait) * time.Second
	}
	page, err := a.Operations.Changes(waiting, c.by, keyserver.ChangeFilter{After: after, Wait: wait})
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		page, err = keyserver.ChangePage{Cursor: after}, nil
	}
	if err != nil {
		return schema.ChangePage{}, err
	}
	return schema.ChangePage{Cursor: page.Cursor, Reset: page.Reset, Changes: operations.Convert(page.Changes, func(ch keyserver.Change) schema.Change {
		return schema.Change{Seq: ch.Seq, Kind: string(ch.Kind), ID: schema.HexID(ch.ID), Action: string(ch.Action)}
	})}, nil
}
