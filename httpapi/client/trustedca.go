package client

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const trustedCAs = "/api/trusted-cas"

// TrustedCAs lists the trusted CAs.
func (c *Client) TrustedCAs(ctx context.Context) (schema.TrustedCAList, error) {
	return get[schema.TrustedCAList](ctx, c, trustedCAs)
}

// TrustedCABodies lists the trusted CAs with the DER of each.
func (c *Client) TrustedCABodies(ctx context.Context) (schema.TrustedCAList, error) {
	return get[schema.TrustedCAList](ctx, c, trustedCAs+query(schema.TrustedCAsQuery{IncludeBodies: true}))
}

// AddTrustedCA adds one DER certificate. ALREADY_TRUSTED where it is listed;
// NOT_SAVED, with the answer filled, where a fresh read does not show it.
func (c *Client) AddTrustedCA(ctx context.Context, der []byte) (schema.TrustedCAAdded, error) {
	return post[schema.TrustedCAAdded](ctx, c, trustedCAs, schema.AddTrustedCARequest{Certificate: der})
}

// RemoveTrustedCA removes a CA by its certificateId in base64. NOT_TRUSTED
// where none has it; NOT_REMOVED, with the answer filled, where a fresh read
// still shows it.
func (c *Client) RemoveTrustedCA(ctx context.Context, certificateID string) (schema.TrustedCARemoved, error) {
	var in schema.RemoveTrustedCARequest
	if err := in.CertificateID.UnmarshalText([]byte(certificateID)); err != nil {
		return schema.TrustedCARemoved{}, refuse("certificateId", err)
	}
	return post[schema.TrustedCARemoved](ctx, c, trustedCAs+"/remove", in)
}
