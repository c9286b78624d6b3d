package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func exportKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ExportKeyRequest) (schema.ExportedKey, error) {
	to := keyserver.PrincipalRef{System: keyserver.SystemID(in.SystemID), ID: keyserver.ID(in.PrincipalID)}
	k, err := ops.ExportKey(ctx, by, keyserver.KeyExport{Link: keyserver.HiddenLink(in.TTag), Recipient: to})
	if err != nil {
		return schema.ExportedKey{}, err
	}
	return schema.ExportedKey{
		JWE: k.JWE, Algorithm: k.Algorithm, Detail: "only the private key of the recipient's certificate can decrypt it",
		Recipient: schema.KeyRecipient{
			SystemID: in.SystemID, PrincipalID: in.PrincipalID, Name: k.Recipient.Name, CertificateID: schema.Base64ID(k.Certificate.ID),
		},
	}, nil
}
