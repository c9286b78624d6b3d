package keys_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/keyring"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/enginetest"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// TestSpentEntriesLearnNothing checks that a caller whose ACL entry has no uses left gets the same error for each state
// of the key, even if the request has another error.
func TestSpentEntriesLearnNothing(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
		spent := f.Add(t, keyserver.PasswordPrincipal, "spent", []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger}, nil)
		empty := f.Add(t, keyserver.PasswordPrincipal, "empty", []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger}, nil)
		foreign := enginetest.CallOf("foreign", "spent")
		for _, state := range []keyserver.KeyState{keyserver.KeyVerifyOnly, keyserver.KeyDisabled, keyserver.KeyDestroying, keyserver.KeyDestroyed} {
			t.Run(string(state), func(t *testing.T) {
				hmac, aes := storeKey(t, f, keyserver.HMACSHA384, state), storeKey(t, f, keyserver.AES256, state)
				_, id, _ := aes.Split()
				for _, link := range []keyserver.HiddenLink{hmac, aes} {
					f.Grant(t, link, spent.Principal, keyserver.Owner, 1)
					f.Grant(t, link, empty.Principal, keyserver.Owner, 0)
					f.Grant(t, link, foreign.Principal, keyserver.Owner, 0)
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
						_, err := verifyOf(f, by, keyserver.KeyChoice{Lineage: hmac}, noMAC(), "m")
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
						_, err := f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Key: aes}, Sealed: ciphertextOf(values.IDFromUint64(9))})
						return err
					},
					"DecryptOtherLine": func(by keyserver.Caller) error {
						_, err := f.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: keyserver.KeyChoice{Lineage: aes}, Sealed: ciphertextOf(values.IDFromUint64(9))})
						return err
					},
					"Export": func(by keyserver.Caller) error {
						if by.Peer != nil { // peers cannot export keys
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
				answers := enginetest.Must(f.MACBatch(ctx, spent, []keyserver.MACItem{{Lineage: hmac}}))(t)
				if got := fault.CodeOf(answers[0].Err); got != fault.ACLDenied {
					t.Errorf("an item of a batch: %s", got)
				}
				explained := enginetest.Must(f.Explain(ctx, spent, keyserver.Question{Operation: keyserver.OpHMAC, Link: hmac}))(t)
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

// spend uses up an ACL entry with one use.
func spend(t *testing.T, f *enginetest.Fixture, link keyserver.HiddenLink, p keyserver.PrincipalRef) {
	t.Helper()
	entry, _ := enginetest.Must(f.ACL(ctx, f.Admin, link))(t).Entry(p)
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

// TestRefusedExportsCountNoUse checks that a refused export counts no use, whatever the cause of the refusal is.
func TestRefusedExportsCountNoUse(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		owner := f.Add(t, keyserver.PasswordPrincipal, "owner", []keyserver.ID{keyserver.RoleEncryptor, keyserver.RoleExchanger}, nil)
		sealed := enginetest.Must(f.MintKey(ctx, f.Admin, keyserver.NewKey{Algorithm: keyserver.HMACSHA384, Sealed: true}))(t).Link
		for link, want := range map[keyserver.HiddenLink]fault.Code{f.Mint(t, f.Admin, nil): fault.InvalidArgument, sealed: fault.KeyNotExportable} {
			f.Grant(t, link, owner.Principal, keyserver.Owner, 1)
			for range 2 {
				_, err := f.ExportKey(ctx, owner, keyserver.KeyExport{Link: link, Recipient: f.Admin.Principal})
				if fault.CodeOf(err) != want {
					t.Errorf("got %v, want %s", err, want)
				}
			}
			if entry, _ := enginetest.Must(f.ACL(ctx, f.Admin, link))(t).Entry(owner.Principal); entry.Used != 0 {
				t.Errorf("%d uses were counted by exports that were refused as %s", entry.Used, want)
			}
		}
	})
}

// TestExplainedUsesAreExact checks that explanations of all replicas show the current number of remaining uses.
func TestExplainedUsesAreExact(t *testing.T) {
	enginetest.OnEach(t, func(t *testing.T, f *enginetest.Fixture) {
		const uses = 3
		link := f.Mint(t, f.Admin, nil)
		team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil)
		user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, []keyserver.ID{team.Principal.ID})
		f.Grant(t, link, user.Principal, keyserver.Read, uses)
		f.Grant(t, link, team.Principal, keyserver.Read, uses)
		other := engine.New(f.Config)
		for left := int64(2 * uses); left >= 0; left-- {
			for _, asked := range []*engine.Engine{f.Engine, other} {
				is := enginetest.Must(asked.Explain(ctx, f.Admin, keyserver.Question{Operation: keyserver.OpHMAC, Link: link, Principal: &user.Principal.ID}))(t)
				if is.Uses == nil || *is.Uses != left || is.Allowed != (left > 0) || is.Staleness <= 0 {
					t.Errorf("with %d uses left: %+v", left, is)
				}
			}
			if left > 0 {
				enginetest.Must(f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")}))(t)
			}
		}
	})
}

// TestALimitIsOfTheLine checks that a usage limit applies to the entire lineage. During rotations, concurrent replicas
// and peers use several keys of the lineage. Together they get exactly the number of uses of the limit.
func TestALimitIsOfTheLine(t *testing.T) {
	const limit, replicas, rotations = 30, 2, 4
	for name, database := range enginetest.Databases {
		t.Run(name, func(t *testing.T) {
			config := database(t)
			kek := enginetest.Must(keyring.EnsureFileKey(t.TempDir()))(t)
			f := enginetest.NewUnder(t, config, kek)
			engines := []*engine.Engine{f.Engine, engine.New(f.Config)}
			if f.Store.Shared() {
				engines[1] = enginetest.NewUnder(t, config, kek).Engine
			}
			enginetest.Must(f.AddTrustedServer(ctx, f.Admin, f.TrustedPeer(t)))(t)
			line := f.Mint(t, f.Admin, nil)
			team := f.Add(t, keyserver.GroupPrincipal, "team", nil, nil)
			user := f.Add(t, keyserver.PasswordPrincipal, "user", []keyserver.ID{keyserver.RoleExchanger}, []keyserver.ID{team.Principal.ID})
			peer := enginetest.CallOf("foreign", "")
			f.Grant(t, line, team.Principal, keyserver.Read, limit)
			f.Grant(t, line, peer.Principal, keyserver.Read, limit)

			var mu sync.Mutex
			links, calls := []keyserver.HiddenLink{line}, 0
			var granted [2]int
			use := func(e *engine.Engine, n int) error {
				mu.Lock()
				link := links[n%len(links)]
				calls++
				by := user
				if n%2 == 1 {
					by = enginetest.CallOf("foreign", strconv.Itoa(calls))
				}
				mu.Unlock()
				var err error
				if n%3 == 0 {
					_, err = e.MAC(ctx, by, keyserver.MACRequest{Lineage: line, Message: text("m")})
				} else {
					_, err = e.HMAC(ctx, by, keyserver.HMACRequest{Link: link, Message: text("m")})
				}
				if err == nil {
					mu.Lock()
					granted[n%2]++
					mu.Unlock()
				}
				return err
			}
			var wg sync.WaitGroup
			for i := range 4 * replicas {
				wg.Go(func() {
					for n := range limit {
						err := use(engines[i%replicas], i/replicas+n)
						if code := fault.CodeOf(err); err != nil && code != fault.ACLDenied && code != fault.NotCurrent {
							t.Errorf("got %v", err)
						}
					}
				})
			}
			wg.Go(func() {
				for range rotations {
					next, err := f.RotateKey(ctx, f.Admin, line)
					if err != nil {
						t.Errorf("rotate: %v", err)
						return
					}
					mu.Lock()
					links = append(links, next)
					mu.Unlock()
				}
			})
			wg.Wait()
			for n := range 2 * len(links) { // try each key of the lineage again
				_ = use(engines[0], n)
			}
			if granted != [2]int{limit, limit} {
				t.Errorf("%v uses were granted, the limit is %d", granted, limit)
			}
			for _, link := range links {
				for _, p := range []keyserver.PrincipalRef{team.Principal, peer.Principal} {
					if entry, _ := enginetest.Must(f.Store.ACL(ctx, idOf(link)))(t).Entry(p); entry.Used != limit {
						t.Errorf("the list of %s says %d uses", link.Base64(), entry.Used)
					}
				}
			}
			// A new limit resets the count for the entire lineage.
			f.Grant(t, links[1], team.Principal, keyserver.Read, 2)
			for i, link := range []keyserver.HiddenLink{links[1], links[0], links[1], links[0]} {
				want := i != 2 // two uses are counted; only links[1] has the limit
				if _, err := f.HMAC(ctx, user, keyserver.HMACRequest{Link: link, Message: text("m")}); (err == nil) != want {
					t.Errorf("use %d after the change of the limit: %v", i+1, err)
				}
			}
		})
	}
}

func idOf(link keyserver.HiddenLink) keyserver.ID {
	_, id, _ := link.Split()
	return id
}
