package engine

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/ciphertext"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// withView returns the engine with a gate that only explains, and the view that records the gate's decision.
func (e *Engine) withView(q keyserver.Question) (*Engine, *gate.View) {
	ks, v := e.Keys.WithView(q)
	return e.with(ks), v
}

// explainOperation calls the method of the operation, so that all checks of the method run. It does not check arguments
// that a question does not have, such as a message.
func (e *Engine) explainOperation(ctx context.Context, by keyserver.Caller, op keyserver.Operation, link keyserver.HiddenLink) (err error) {
	if link == "" {
		return e.AuthorizeAndAudit(ctx, gate.Request{By: by, Op: keyserver.OperationOf(op.ID)}, e.keylessChecks(by, op)...)
	}
	choice := keyserver.KeyChoice{Key: link}
	switch op.ID {
	case keyserver.OpReadKey.ID:
		_, err = e.Key(ctx, by, link)
	case keyserver.OpAuthorizeKey.ID:
		_, err = e.AuthorizeKey(ctx, by, keyserver.Use{Link: link})
	case keyserver.OpHMAC.ID:
		_, err = e.HMAC(ctx, by, keyserver.HMACRequest{Link: link})
	case keyserver.OpMACData.ID:
		_, err = e.MAC(ctx, by, keyserver.MACRequest{Lineage: link})
	case keyserver.OpVerifyMAC.ID:
		_, err = e.VerifyMAC(ctx, by, keyserver.MACCheck{KeyChoice: choice})
	case keyserver.OpEncrypt.ID:
		_, err = e.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: choice})
	case keyserver.OpDecrypt.ID:
		_, id, _ := link.Split()
		_, err = e.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: choice, Sealed: ciphertext.Named(id)})
	case keyserver.OpReadACL.ID:
		_, err = e.ACL(ctx, by, link)
	case keyserver.OpAmendACL.ID:
		err = e.AmendACL(ctx, by, keyserver.ACLChange{Link: link})
	case keyserver.OpExportKey.ID:
		_, err = e.ExportKey(ctx, by, keyserver.KeyExport{Link: link})
	case keyserver.OpChangeKeyState.ID:
		_, err = e.KeyState(ctx, by, link)
	case keyserver.OpRotateKey.ID:
		_, err = e.KeyLineage(ctx, by, link)
	default:
		err = fmt.Errorf("no question is defined for the key operation %s", op.Key)
	}
	return err
}

// keylessChecks returns the additional checks of an operation that concerns no key.
func (e *Engine) keylessChecks(by keyserver.Caller, op keyserver.Operation) []gate.Check {
	if op.ID == keyserver.OpDelegateLogin.ID {
		return []gate.Check{e.unchained(by)}
	}
	return nil
}
