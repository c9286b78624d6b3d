package client

import (
	"context"
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Changes reads the change feed after a cursor. Where nothing changed yet it
// waits up to wait, cut to whole seconds and at most 60, and then answers the
// same cursor.
func (c *Client) Changes(ctx context.Context, after int64, wait time.Duration) (schema.ChangePage, error) {
	seconds := min(max(int(wait/time.Second), 0), 60)
	return send[schema.ChangePage](ctx, c, call{
		method:   http.MethodGet,
		path:     "/api/changes" + query(schema.ChangesQuery{After: &after, Wait: &seconds}),
		nameless: true,
		wait:     time.Duration(seconds) * time.Second,
	})
}
