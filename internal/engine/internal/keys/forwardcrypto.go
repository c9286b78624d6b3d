package keys

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// consultFor is gate.Consult for an operation that returns a result.
func consultFor[T any](ctx context.Context, e *Keys, r gate.Request, to keyserver.SystemID,
	send func(at keyserver.Federated, as keyserver.Caller) (T, error),
) (answer T, err error) {
	err = e.Consult(ctx, r, to, fault.KeyNotFound, func(at keyserver.Federated, as keyserver.Caller) (err error) {
		answer, err = send(at, as)
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return answer, nil
}

func (ks *Keys) forwardMAC(ctx context.Context, r gate.Request, to keyserver.SystemID, in keyserver.MACRequest) (keyserver.MAC, error) {
	return consultFor(ctx, ks, r, to, func(at keyserver.Federated, as keyserver.Caller) (keyserver.MAC, error) { return at.MAC(ctx, as, in) })
}

func (ks *Keys) forwardVerifyMAC(ctx context.Context, r gate.Request, to keyserver.SystemID, in keyserver.MACCheck) (keyserver.MACVerdict, error) {
	return consultFor(ctx, ks, r, to, func(at keyserver.Federated, as keyserver.Caller) (keyserver.MACVerdict, error) {
		return at.VerifyMAC(ctx, as, in)
	})
}

func (ks *Keys) forwardEncrypt(ctx context.Context, r gate.Request, to keyserver.SystemID, in keyserver.Encryption) (keyserver.Ciphertext, error) {
	return consultFor(ctx, ks, r, to, func(at keyserver.Federated, as keyserver.Caller) (keyserver.Ciphertext, error) {
		return at.Encrypt(ctx, as, in)
	})
}

func (ks *Keys) forwardDecrypt(ctx context.Context, r gate.Request, to keyserver.SystemID, in keyserver.Decryption) (keyserver.Plaintext, error) {
	return consultFor(ctx, ks, r, to, func(at keyserver.Federated, as keyserver.Caller) (keyserver.Plaintext, error) {
		return at.Decrypt(ctx, as, in)
	})
}
