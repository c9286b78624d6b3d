package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func mintKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.MintKeyRequest) (schema.KeyMetadata, error) {
	key := keyserver.NewKey{Algorithm: keyserver.Algorithm(in.Algorithm)}
	if in.Material != nil {
		key.Material = *in.Material
	}
	if in.Path != nil {
		key.Path = *in.Path
	}
	key.Sealed = in.Exportable != nil && !*in.Exportable
	m, err := ops.MintKey(ctx, by, key)
	clear(key.Material) // the key server has its own encrypted copy
	if err != nil {
		return schema.KeyMetadata{}, err
	}
	return keyMetadataOf(m), nil
}

func getKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRequest) (schema.KeyMetadata, error) {
	m, err := ops.Key(ctx, by, keyserver.HiddenLink(in.TTag))
	if err != nil {
		return schema.KeyMetadata{}, err
	}
	return keyMetadataOf(m), nil
}

func authorizeKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AuthorizeKeyRequest) (schema.KeyGrant, error) {
	g, err := ops.AuthorizeKey(ctx, by, keyserver.Use{Link: keyserver.HiddenLink(in.TTag), Filename: in.Filename})
	if err != nil {
		return schema.KeyGrant{}, err
	}
	return schema.KeyGrant{Authorized: true, SystemID: schema.SystemID(g.System), FilenameAudited: g.FilenameAudited}, nil
}

func keyMetadataOf(m keyserver.KeyMetadata) schema.KeyMetadata {
	return schema.KeyMetadata{KeyFacts: keyFactsOf(m), Detail: mintedUnder(m.Directory)}
}

// mintedUnder returns the detail for a key whose ACL entries, except the creator's, come from an ACL template.
func mintedUnder(directory string) string {
	if directory == "" {
		return ""
	}
	return "the ACL entries of the key, except the creator's, are from the ACL template of the templated directory " + directory
}
