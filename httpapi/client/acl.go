package client

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const acl = "/api/keys/acl"

// GrantACL adds rights to a principal's entry, which it makes where there is
// none. NOT_VERIFIED, with the answer filled, where they do not read back.
func (c *Client) GrantACL(ctx context.Context, in schema.ACLChangeRequest) (schema.ACLResponse, error) {
	return post[schema.ACLResponse](ctx, c, acl+"/grant", in)
}

// AmendACL sets an existing entry to the rights. NOT_VERIFIED, with the answer
// filled, where they do not read back.
func (c *Client) AmendACL(ctx context.Context, in schema.ACLChangeRequest) (schema.ACLResponse, error) {
	return post[schema.ACLResponse](ctx, c, acl+"/update", in)
}

// RevokeACL removes a principal's entry. NOT_VERIFIED, with the answer filled,
// where it still reads back.
func (c *Client) RevokeACL(ctx context.Context, in schema.ACLRevokeRequest) (schema.ACLResponse, error) {
	return post[schema.ACLResponse](ctx, c, acl+"/revoke", in)
}

// ACL reads a key's access control list.
func (c *Client) ACL(ctx context.Context, link schema.HiddenLink) (schema.ACLResponse, error) {
	return post[schema.ACLResponse](ctx, c, acl+"/get", schema.KeyRequest{TTag: link})
}
