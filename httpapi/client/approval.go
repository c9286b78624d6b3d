package client

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// ExecuteApproval carries out an approved request, once, and answers what its
// route answers. A request that fails is executed, too, and has to be asked for
// anew. Codes of its own: NOT_FOUND, APPROVAL_STATE.
func (c *Client) ExecuteApproval(ctx context.Context, in schema.ByID) (jsontext.Value, error) {
	return ask[jsontext.Value](ctx, c, route{name: "executeApproval", method: http.MethodPost, path: "/api/approvals/{id}/execute", named: true}, in)
}
