package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const trustedServers = "/api/trusted-servers"

// TrustedServers lists the registered peers.
func (c *Client) TrustedServers(ctx context.Context) (schema.TrustedServerList, error) {
	return get[schema.TrustedServerList](ctx, c, trustedServers)
}

// TrustedServerBodies lists the registered peers with the trust blob of each.
func (c *Client) TrustedServerBodies(ctx context.Context) (schema.TrustedServerList, error) {
	return get[schema.TrustedServerList](ctx, c, trustedServers+query(schema.TrustedServersQuery{IncludeBodies: true}))
}

// TrustedServersNamed finds the peers registered under a server name.
// NOT_FOUND where there is none.
func (c *Client) TrustedServersNamed(ctx context.Context, name string) (schema.TrustedServerList, error) {
	return send[schema.TrustedServerList](ctx, c, call{method: http.MethodGet, path: trustedServers + query(schema.TrustedServersQuery{Name: &name})})
}

// AddTrustedServer registers a peer from its trust blob. ALREADY_EXISTS where
// its system id is registered; NOT_PERSISTED, with the answer filled, where it
// does not read back.
func (c *Client) AddTrustedServer(ctx context.Context, trustBlob, friendlyName, description string) (schema.TrustedServerSaved, error) {
	return c.register(ctx, trustBlob, schema.AddTrustedServerRequest{FriendlyName: friendlyName, Description: description})
}

// ReplaceTrustedServer registers a peer, or replaces its record in one step
// where its system id is registered. Its transport principal stays with id,
// flags and roles, and so do ACL rows and principal trusts.
func (c *Client) ReplaceTrustedServer(ctx context.Context, trustBlob, friendlyName, description string) (schema.TrustedServerSaved, error) {
	return c.register(ctx, trustBlob, schema.AddTrustedServerRequest{FriendlyName: friendlyName, Description: description, Replace: true})
}

func (c *Client) register(ctx context.Context, trustBlob string, in schema.AddTrustedServerRequest) (schema.TrustedServerSaved, error) {
	if err := in.TrustBlob.UnmarshalText([]byte(trustBlob)); err != nil {
		return schema.TrustedServerSaved{}, refuse("trustBlob", err)
	}
	return post[schema.TrustedServerSaved](ctx, c, trustedServers, in)
}

// UpdateTrustedServer changes a peer's friendly name, its description, or both.
func (c *Client) UpdateTrustedServer(ctx context.Context, systemID uint32, change schema.UpdateTrustedServerRequest) (schema.TrustedServerUpdated, error) {
	return send[schema.TrustedServerUpdated](ctx, c, call{method: http.MethodPut, path: peerPath(systemID), body: change})
}

// RemoveTrustedServer removes a peer. NOT_REMOVED, with the answer filled,
// where a fresh list still has it.
func (c *Client) RemoveTrustedServer(ctx context.Context, systemID uint32) (schema.TrustedServerGone, error) {
	return send[schema.TrustedServerGone](ctx, c, call{method: http.MethodDelete, path: peerPath(systemID)})
}

// TrustInfo reads what other key servers need to register this one.
func (c *Client) TrustInfo(ctx context.Context) (schema.TrustInfo, error) {
	return get[schema.TrustInfo](ctx, c, "/api/trust/local-info")
}

func peerPath(systemID uint32) string {
	return trustedServers + "/" + strconv.FormatUint(uint64(systemID), 10)
}
