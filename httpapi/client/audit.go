package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// Audit reads one page of the audit trail.
func (c *Client) Audit(ctx context.Context, q schema.AuditQuery) (schema.AuditPage, error) {
	v := url.Values{}
	put := func(name, value string, sent bool) {
		if sent {
			v.Set(name, value)
		}
	}
	put("reason", q.Reason, q.Reason != "")
	put("operation", q.Operation, q.Operation != "")
	put("since", q.Since.Format(time.RFC3339Nano), !q.Since.IsZero())
	put("until", q.Until.Format(time.RFC3339Nano), !q.Until.IsZero())
	put("cursor", strconv.FormatInt(q.Cursor, 10), q.Cursor != 0)
	if q.PrincipalID != nil {
		v.Set("principalId", q.PrincipalID.String())
	}
	if q.Limit != nil {
		v.Set("limit", strconv.Itoa(*q.Limit))
	}
	path := "/api/audit"
	if len(v) > 0 {
		path += "?" + v.Encode()
	}
	return get[schema.AuditPage](ctx, c, path)
}
