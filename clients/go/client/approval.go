package client

import (
	"context"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// ExecuteApproval executes an approved request once and returns the response of its route. A request that fails counts
// as executed, so a new approval is needed. Codes of this route: NOT_FOUND, APPROVAL_STATE.
func (c *Client) ExecuteApproval(ctx context.Context, in schema.ByID) (jsontext.Value, error) {
	return ask[jsontext.Value](ctx, c, route{name: "executeApproval", method: http.MethodPost, path: "/api/approvals/{id}/execute", named: true}, in)
}
