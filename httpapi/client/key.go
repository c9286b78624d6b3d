package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// MintKey makes or imports a key.
func (c *Client) MintKey(ctx context.Context, in schema.MintKeyRequest) (schema.KeyMetadata, error) {
	return send[schema.KeyMetadata](ctx, c, call{method: http.MethodPost, path: "/api/keys", body: in, nameless: true})
}

// Key reads key metadata.
func (c *Client) Key(ctx context.Context, link schema.HiddenLink) (schema.KeyMetadata, error) {
	return post[schema.KeyMetadata](ctx, c, "/api/keys/get", schema.KeyRequest{TTag: link})
}

// AuthorizeKey asks whether the session may use the key; a no is ACL_DENIED.
// The file name is recorded with the question and may be empty. Of the codes
// that may be tried again, PEER_UNAVAILABLE is left to the caller: a use of the
// key may have been counted, and another try may count another one.
func (c *Client) AuthorizeKey(ctx context.Context, link schema.HiddenLink, filename string) (schema.KeyGrant, error) {
	return send[schema.KeyGrant](ctx, c, call{
		method: http.MethodPost, path: "/api/keys/authorize", body: schema.AuthorizeKeyRequest{TTag: link, Filename: filename}, counts: true,
	})
}
