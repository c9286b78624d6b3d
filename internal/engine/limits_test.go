package engine_test

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/sqlstore"
)

// A caller whose entry has no uses left is denied like one without an entry, whatever the
// state of the key and whatever else is wrong with the request.
func TestSpentEntriesLearnNothing(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		must(f.AddTrustedServer(ctx, f.Admin, trustedPeer(t, f)))(t)
		spent := f.Add(t, keyserver.PasswordPrincipal, "spent", []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger}, nil)
		empty := f.Add(t, keyserver.PasswordPrincipal, "empty", []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger}, nil)
		foreign := callOf("foreign", "spent")
		for _, state := range []keyserver.KeyState{keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroying, keyserver.KeyDestroyed} {
			t.Run(string(state), func(t *testing.T) {
				hmac, aes := storeKey(t, f, keyserver.HMACSHA384, state), storeKey(t, f, keyserver.AES256, state)
				_, id, _ := aes.Split()
				for _, link := range []keyserver.HiddenLink{hmac, aes} {
					grant(t, f, link, spent.Principal, keyserver.Owner, 1)
					grant(t, f, link, empty.Principal, keyserver.Owner, 0)
					grant(t, f, link, foreign.Principal, keyserver.Owner, 0)
					spend(t, f, link, spent.Principal)
				}
				ciphertextOf := func(id keyserver.ID) []byte { return append(append([]byte{1}, id[:]...), make([]byte, 28)...) }
				uses := map[string]func(by keyserver.Caller) error{
					"HMAC": func(by keyserver.Caller) error {
						_, err := f.HMAC(ctx, by, keyserver.HMACRequest{Link: hmac, Message: text("m")})
						return err
					},
					"Authorize": func(by keyserver.Caller) error {
						_, err := f.AuthorizeKey(ctx, by, keyserver.Use{Link: hmac})
						return err
					},
					"MAC": func(by keyserver.Caller) error { _, err := macOf(f, by, hmac, "m"); return err },
					"Verify": func(by keyserver.Caller) error {
						_, err := verifyOf(f, by, keyserver.KeyChoice{Key: hmac}, noMAC(), "m")
						return err
					},
					"VerifyLine": func(by keyserver.Caller) error {
						_, err := verifyOf(f, by, keyserver.KeyChoice{Line: hmac}, noMAC(), "m")
						return err
					},
					"VerifyByOtherAlgorithm": func(by keyserver.Caller) error {
						_, err := verifyOf(f, by, keyserver.KeyChoice{Key: aes}, noMAC(), "m")
						return err
					},
					"Encrypt": func(by keyserver.Caller) error {
						_, err := f.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Key: aes}})
						return err
					},
					"Decrypt": func(by keyserver.Caller) error {
						_, err := f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Key: aes}, Sealed: ciphertextOf(id)})
						return err
					},
					"DecryptOther": func(by keyserver.Caller) error {
						_, err := f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Key: aes}, Sealed: ciphertextOf(keyserver.IDFromUint64(9))})
						return err
					},
					"DecryptOtherLine": func(by keyserver.Caller) error {
						_, err := f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Line: aes}, Sealed: ciphertextOf(keyserver.IDFromUint64(9))})
						return err
					},
					"Export": func(by keyserver.Caller) error {
						if by.Peer != nil { // not done for peers at all
							return fault.New(fault.ACLDenied, "")
						}
						_, err := f.ExportKey(ctx, by, keyserver.KeyExport{Link: hmac, Recipient: f.Admin.Principal})
						return err
					},
				}
				for name, use := range uses {
					for _, by := range []keyserver.Caller{spent, empty, foreign} {
						if err := use(by); fault.CodeOf(err) != fault.ACLDenied {
							t.Errorf("%s by %s: %v, want %s", name, by.Name, err, fault.ACLDenied)
						}
					}
				}
				answers := must(f.MACBatch(ctx, spent, []keyserver.MACItem{{Line: hmac}}))(t)
				if got := fault.CodeOf(answers[0].Err); got != fault.ACLDenied {
					t.Errorf("an item of a batch: %s", got)
				}
				explained := must(f.Explain(ctx, spent, keyserver.Question{Operation: keyserver.OpHMAC, Link: hmac}))(t)
				if got := fault.CodeOf(explained.Refusal); got != fault.ACLDenied {
					t.Errorf("the explanation says %s", got)
				}
				for _, step := range explained.Steps {
					if step.Step == keyserver.StepState {
						t.Errorf("the explanation tells of the state: %+v", step)
					}
				}
			})
		}
	})
}

// spend takes the only use of a principal's entry.
func spend(t *testing.T, f *enginetest.Fixture, link keyserver.HiddenLink, p keyserver.PrincipalRef) {
	t.Helper()
	entry, _ := must(f.ACL(ctx, f.Admin, link))(t).Entry(p)
	if err := f.Store.Update(ctx, func(tx *sqlstore.Tx) error {
		taken, err := tx.UseACLEntry(ctx, entry.ID)
		if err == nil && !taken {
			t.Error("the entry has no use")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// An explanation has the uses that are left after each use, by whichever process it was.
func TestExplainedUsesAreExact(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		const uses = 3
		link := mint(t, f, f.Admin, nil)
		team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, []keyserver.ID{team.Principal.ID})
		grant(t, f, link, user.Principal, keyserver.Read, uses)
		grant(t, f, link, team.Principal, keyserver.Read, uses)
		other := engine.New(f.Config)
		for left := int64(2 * uses); left >= 0; left-- {
			for _, asked := range []*engine.Engine{f.Engine, other} {
				is := must(asked.Explain(ctx, f.Admin, keyserver.Question{Operation: keyserver.OpHMAC, Link: link, Principal: &user.Principal.ID}))(t)
				if is.Uses == nil || *is.Uses != left || is.Allowed != (left > 0) || is.Staleness <= 0 {
					t.Errorf("with %d uses left: %+v", left, is)
				}
			}
			if left > 0 {
				must(f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)
			}
		}
	})
}
