package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func encrypt(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.EncryptRequest) (schema.EncryptResponse, error) {
	sealed, err := ops.Encrypt(ctx, by, keyserver.Encryption{
		KeyChoice: choiceOf(in.TTag, in.Lineage), Plain: in.Data, Associated: bytesOf(in.AssociatedData),
	})
	clear(in.Data)
	if err != nil {
		return schema.EncryptResponse{}, err
	}
	return schema.EncryptResponse{
		Algorithm: keyserver.EncryptionAlgorithm, Ciphertext: sealed.Sealed, TTag: schema.HiddenLink(sealed.Link), Generation: sealed.Generation,
	}, nil
}

func decrypt(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.DecryptRequest) (schema.DecryptResponse, error) {
	plain, err := ops.Decrypt(ctx, by, keyserver.Decryption{
		KeyChoice: choiceOf(in.TTag, in.Lineage), Sealed: in.Ciphertext, Associated: bytesOf(in.AssociatedData),
	})
	if err != nil {
		return schema.DecryptResponse{}, err
	}
	return schema.DecryptResponse{Data: append(schema.Base64{}, plain.Plain...), TTag: schema.HiddenLink(plain.Link), Generation: plain.Generation}, nil
}

// choiceOf returns the key or key lineage that a request names. The operation checks that
// there is exactly one.
func choiceOf(ttag, lineage *schema.HiddenLink) (choice keyserver.KeyChoice) {
	if ttag != nil {
		choice.Key = keyserver.HiddenLink(*ttag)
	}
	if lineage != nil {
		choice.Lineage = keyserver.HiddenLink(*lineage)
	}
	return choice
}

func bytesOf(b *schema.Base64) []byte {
	if b == nil {
		return nil
	}
	return *b
}
