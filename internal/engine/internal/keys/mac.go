package keys

import (
	"context"
	"crypto/subtle"
	"hash"
	"slices"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/access"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/internal/gate"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// purpose is a kind of use. It says which keys can be used for it.
type purpose struct {
	algorithm keyserver.Algorithm
	allows    func(keyserver.KeyState) bool
	does      string // verb phrase for error messages
}

var (
	makeMACs  = purpose{algorithm: keyserver.HMACSHA384, allows: keyserver.KeyState.MayCreate, does: "makes MACs"}
	checkMACs = purpose{algorithm: keyserver.HMACSHA384, allows: keyserver.KeyState.MayVerify, does: "verifies MACs"}
)

// MAC implements keyserver.Keys.
func (ks *Keys) MAC(ctx context.Context, by keyserver.Caller, in keyserver.MACRequest) (mac keyserver.MAC, err error) {
	choice := keyserver.KeyChoice{Lineage: in.Lineage}
	r := choosing(by, keyserver.OpMACData, choice)
	if to, ok := ks.Foreign(in.Lineage); ok {
		return ks.forwardMAC(ctx, r, to, in)
	}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.resolveKey(by, choice, makeMACs), func(key target) error {
		mac.UsedKey = key.used()
		return key.mac(in.Message, &mac.Sum)
	})
	return mac, err
}

// choosing returns the request of an operation whose key a check chooses.
func choosing(by keyserver.Caller, op keyserver.Operation, choice keyserver.KeyChoice) gate.Request {
	return gate.Request{By: by, Op: op, Link: choice.Named(), Chosen: true, Counts: true}
}

// mac computes the HMAC of a message.
func (k *cachedKey) mac(message keyserver.Message, sum *[keyserver.MACSize]byte) error {
	state, err := k.macs.take()
	if err != nil {
		return err
	}
	defer k.macs.put(state)
	if _, err := message.WriteTo(state); err != nil {
		return err
	}
	state.Sum(sum[:0])
	return nil
}

// VerifyMAC implements keyserver.Keys.
func (ks *Keys) VerifyMAC(ctx context.Context, by keyserver.Caller, in keyserver.MACCheck) (verdict keyserver.MACVerdict, err error) {
	r := choosing(by, keyserver.OpVerifyMAC, in.KeyChoice)
	if to, ok := ks.Foreign(in.Named()); ok {
		return ks.forwardVerifyMAC(ctx, r, to, in)
	}
	err = gate.PerformOn(ctx, ks.Gate, r, ks.withOlderKeys(by, in.KeyChoice), func(keys verification) (err error) {
		verdict, err = verify(in, keys.cachedKey, keys.older)
		return err
	})
	return verdict, err
}

// verify compares the MAC of a message with the MACs that the keys make of the message. It reads the message only once.
// Its duration does not show which key made the MAC.
func verify(in keyserver.MACCheck, key *cachedKey, others []*cachedKey) (keyserver.MACVerdict, error) {
	keys := append([]*cachedKey{key}, others...)
	states := make(multiHash, 0, len(keys))
	defer func() {
		for i, state := range states {
			keys[i].macs.put(state)
		}
	}()
	for _, k := range keys {
		state, err := k.macs.take()
		if err != nil {
			return keyserver.MACVerdict{}, err
		}
		states = append(states, state)
	}
	if _, err := in.Message.WriteTo(states); err != nil {
		return keyserver.MACVerdict{}, err
	}
	mac := in.MAC()
	made, found := 0, 0
	var sum [keyserver.MACSize]byte
	for i, state := range states {
		same := subtle.ConstantTimeCompare(state.Sum(sum[:0]), mac[:])
		made = subtle.ConstantTimeSelect(same, i, made)
		found |= same
	}
	return keyserver.MACVerdict{UsedKey: keys[made].used(), Valid: found == 1}, nil
}

// multiHash writes the same bytes to several hash states.
type multiHash []hash.Hash

// Write implements io.Writer. It never fails, because a hash does not fail.
func (f multiHash) Write(b []byte) (int, error) {
	for _, state := range f {
		state.Write(b)
	}
	return len(b), nil
}

// resolveKey returns a Resolver for the named key, or for the newest key of the named lineage that can be used for the
// purpose. The Resolver fails unless the caller may use the key now. A caller that the ACL denies learns nothing else
// about the key.
func (ks *Keys) resolveKey(by keyserver.Caller, choice keyserver.KeyChoice, what purpose) gate.Resolver[target] {
	return func(ctx context.Context, who access.Subject) (target, error) {
		key, err := ks.choose(ctx, choice, what)
		if err := ks.Step(keyserver.StepKey, err); err != nil {
			return target{}, err
		}
		if unfit := what.unfit(key, choice); unfit != nil {
			if err = ks.checkACL(key, who, keyserver.Read); err == nil {
				err = ks.Step(keyserver.StepState, unfit)
			}
			return target{cachedKey: key}, err
		}
		return ks.authorizeUse(ctx, by, who, keyserver.Read, what.allows, key)
	}
}

// unfit returns an error if the key cannot be used for the purpose.
func (p purpose) unfit(key *cachedKey, choice keyserver.KeyChoice) error {
	switch {
	case key.algorithm != p.algorithm:
		return fault.New(fault.InvalidArgument, "the key has algorithm %s, but a key that %s must have algorithm %s; mint one", key.algorithm, p.does, p.algorithm).
			Audited(fault.ReasonInvalidArgument)
	case p.allows(key.life.State):
		return nil
	case choice.Lineage != "":
		return fault.New(fault.KeyDisabled, "no key of the lineage %s: the newest key, generation %d, is %s; ask a key owner", p.does, key.life.Generation, key.life.State).
			Audited(fault.ReasonKeyDisabled)
	default:
		return fault.New(fault.KeyDisabled, "the key is %s, so it no longer %s; ask a key owner", key.life.State, p.does).Audited(fault.ReasonKeyDisabled)
	}
}

// choose returns the named key, or the newest key of the lineage whose state allows the purpose. If no state allows it,
// choose returns the newest key.
func (ks *Keys) choose(ctx context.Context, choice keyserver.KeyChoice, what purpose) (newest *cachedKey, err error) {
	if choice.Lineage == "" {
		return ks.find(ctx, choice.Key, fault.KeyNotFound)
	}
	ids, err := ks.lineage(ctx, choice.Lineage)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(ids) {
		key, err := ks.readKey(ctx, id)
		if err != nil {
			return nil, err
		}
		if what.allows(key.life.State) {
			return key, nil
		}
		if newest == nil {
			newest = key
		}
	}
	return newest, nil
}

// lineage reads the ids of the keys of a lineage through the cache, oldest first. The cache knows new keys, because the
// store announces a new key also as a change of the first key.
func (ks *Keys) lineage(ctx context.Context, link keyserver.HiddenLink) ([]keyserver.ID, error) {
	system, first, ok := link.Split()
	if !ok || system != ks.System {
		return nil, noLineage()
	}
	return ks.lineages.Get(ctx, first)
}

// readLineage reads the ids of the keys of a lineage, oldest first. It fails if there are none.
func (ks *Keys) readLineage(ctx context.Context, first keyserver.ID) ([]keyserver.ID, error) {
	records, err := ks.Store.KeyLineage(ctx, first)
	ids := make([]keyserver.ID, len(records))
	for i, record := range records {
		ids[i] = record.ID
	}
	if err == nil && len(ids) == 0 {
		err = noLineage()
	}
	return ids, err
}

func noLineage() error {
	return fault.New(fault.KeyNotFound, "lineage: not a key lineage of this key server; send the hidden link of the first key of the lineage").
		Audited(fault.ReasonObjectNotFound)
}

// verification is the key that verifies a MAC, with older keys of its lineage that also verify.
type verification struct {
	target
	older []*cachedKey
}

// withOlderKeys is resolveKey for the verification of a MAC. The target also has the older keys of the lineage that can
// verify and whose ACL grants READ to the caller. An older key causes no refusal. A verification counts as one use, of
// the newest key.
func (ks *Keys) withOlderKeys(by keyserver.Caller, choice keyserver.KeyChoice) gate.Resolver[verification] {
	resolve := ks.resolveKey(by, choice, checkMACs)
	return func(ctx context.Context, who access.Subject) (verification, error) {
		newest, err := resolve(ctx, who)
		keys := verification{target: newest}
		if err != nil || choice.Lineage == "" {
			return keys, err
		}
		ids, err := ks.lineage(ctx, choice.Lineage)
		if err != nil {
			return keys, err
		}
		for i := len(ids) - 1; i >= 0 && len(keys.older)+1 < keyserver.MaxVerificationKeys; i-- {
			key, err := ks.readKey(ctx, ids[i])
			if err != nil {
				return keys, err
			}
			if key.life.Generation >= newest.life.Generation || checkMACs.unfit(key, choice) != nil {
				continue
			}
			if access.Evaluate(key.acl, who, keyserver.Read, ks.Clock()).Allowed {
				keys.older = append(keys.older, key)
			}
		}
		return keys, nil
	}
}
