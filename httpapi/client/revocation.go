package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const revocationIssuers = "/api/revocation/issuers"

// RevocationIssuers lists the trusted CAs with policy and evidence.
func (c *Client) RevocationIssuers(ctx context.Context) (schema.RevocationIssuerList, error) {
	return get[schema.RevocationIssuerList](ctx, c, revocationIssuers)
}

// RevocationPolicy reads the policy of the CA with that revocationDigest.
func (c *Client) RevocationPolicy(ctx context.Context, digest string) (schema.RevocationPolicy, error) {
	path, err := policyPath(digest)
	if err != nil {
		return schema.RevocationPolicy{}, err
	}
	return send[schema.RevocationPolicy](ctx, c, call{method: http.MethodGet, path: path})
}

// SetRevocationPolicy sets it. NOT_SAVED, with the answer filled, where it
// does not read back.
func (c *Client) SetRevocationPolicy(ctx context.Context, digest string, in schema.SetRevocationPolicyRequest) (schema.RevocationPolicySaved, error) {
	path, err := policyPath(digest)
	if err != nil {
		return schema.RevocationPolicySaved{}, err
	}
	return send[schema.RevocationPolicySaved](ctx, c, call{method: http.MethodPut, path: path, body: in})
}

// ImportCRL imports a revocation list in DER.
func (c *Client) ImportCRL(ctx context.Context, der []byte) (schema.CRLImported, error) {
	return post[schema.CRLImported](ctx, c, "/api/revocation/crls", schema.ImportCRLRequest{CRL: der})
}

func policyPath(digest string) (string, error) {
	var d schema.IssuerDigest
	if err := d.UnmarshalText([]byte(digest)); err != nil {
		return "", refuse("digest", err)
	}
	return revocationIssuers + "/" + string(d) + "/policy", nil
}
