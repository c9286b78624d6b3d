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

// purpose is what a key has to be good for.
type purpose struct {
	algorithm keyserver.Algorithm
	allows    func(keyserver.KeyState) bool
	does      string // what such a key does
	// takes is what a key has only so much of, taken before a use of its list is
	// counted; nil where there is no such thing.
	takes func(ctx context.Context, key keyserver.ID) error
}

var (
	makeMACs  = purpose{algorithm: keyserver.HMACSHA384, allows: keyserver.KeyState.Makes, does: "makes MACs"}
	checkMACs = purpose{algorithm: keyserver.HMACSHA384, allows: keyserver.KeyState.Checks, does: "checks MACs"}
)

// MAC implements keyserver.Keys.
func (ks *Keys) MAC(ctx context.Context, by keyserver.Caller, in keyserver.MACRequest) (keyserver.MAC, error) {
	var key chosen
	choice := keyserver.KeyChoice{Line: in.Line}
	r := choosing(by, keyserver.OpMACData, choice, &key)
	if to, ok := ks.Foreign(in.Line); ok {
		return ks.forwardMAC(ctx, r, to, in)
	}
	if err := ks.AuthorizeAndAudit(ctx, r, ks.resolveKey(by, choice, makeMACs, &key.heldKey)); err != nil {
		return keyserver.MAC{}, err
	}
	mac := keyserver.MAC{UsedKey: key.used()}
	if err := key.mac(in.Message, &mac.Sum); err != nil {
		return keyserver.MAC{}, ks.Failed(ctx, r, err)
	}
	return mac, nil
}

// choosing is the request of an operation under a key that a check chooses.
func choosing(by keyserver.Caller, op keyserver.Operation, choice keyserver.KeyChoice, into *chosen) gate.Request {
	return gate.Request{By: by, Op: op, Link: choice.Named(), Chosen: into, Counts: true}
}

// chosen is the key that a check chose for an operation, nil until then.
type chosen struct{ *heldKey }

// Link returns the link of the key, or an empty one if none is chosen.
func (c *chosen) Link() keyserver.HiddenLink {
	if c.heldKey == nil {
		return ""
	}
	return c.acl.Link
}

// mac computes the HMAC of a message.
func (k *heldKey) mac(message keyserver.Message, sum *[keyserver.MACSize]byte) error {
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
func (ks *Keys) VerifyMAC(ctx context.Context, by keyserver.Caller, in keyserver.MACCheck) (keyserver.MACVerdict, error) {
	var key chosen
	var others []*heldKey
	r := choosing(by, keyserver.OpVerifyMAC, in.KeyChoice, &key)
	if to, ok := ks.Foreign(in.Named()); ok {
		return ks.forwardVerifyMAC(ctx, r, to, in)
	}
	if err := ks.AuthorizeAndAudit(ctx, r, ks.resolveKey(by, in.KeyChoice, checkMACs, &key.heldKey), ks.withOlderKeys(in.KeyChoice, &key.heldKey, &others)); err != nil {
		return keyserver.MACVerdict{}, err
	}
	verdict, err := verify(in, key.heldKey, others)
	if err != nil {
		return keyserver.MACVerdict{}, ks.Failed(ctx, r, err)
	}
	return verdict, nil
}

// verify compares the MAC of a message with what each of the keys makes of it. It
// reads the message once, and takes as long whichever of them it was.
func verify(in keyserver.MACCheck, key *heldKey, others []*heldKey) (keyserver.MACVerdict, error) {
	keys := append([]*heldKey{key}, others...)
	states := make(fan, 0, len(keys))
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

// fan writes to many states.
type fan []hash.Hash

// Write implements io.Writer. A hash never fails.
func (f fan) Write(b []byte) (int, error) {
	for _, state := range f {
		state.Write(b)
	}
	return len(b), nil
}

// resolveKey returns a check that sets key to the named key, or to the newest key of the lineage that can be used for
// what, and fails unless the caller may use it now. A caller that the ACL denies learns nothing else about the key.
func (ks *Keys) resolveKey(by keyserver.Caller, choice keyserver.KeyChoice, what purpose, key **heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		chosen, err := ks.choose(ctx, choice, what)
		if err := ks.Step(keyserver.StepKey, err); err != nil {
			return err
		}
		*key = chosen
		if unfit := what.unfit(chosen, choice); unfit != nil {
			if err := ks.checkACL(chosen, who, keyserver.Read); err != nil {
				return err
			}
			return ks.Step(keyserver.StepState, unfit)
		}
		verdict, err := ks.mayUse(ctx, by, who, keyserver.Read, what.allows, chosen)
		if err != nil {
			return err
		}
		if what.takes != nil {
			if err := ks.Step(keyserver.StepUses, what.takes(ctx, chosen.id)); err != nil {
				return err
			}
		}
		return ks.countUse(ctx, by, verdict)
	}
}

// unfit says why a key is not good for the purpose.
func (p purpose) unfit(key *heldKey, choice keyserver.KeyChoice) error {
	switch {
	case key.algorithm != p.algorithm:
		return fault.New(fault.InvalidArgument, "the key is for %s, and what %s is a key for %s; mint one", key.algorithm, p.does, p.algorithm).
			Audited(fault.ReasonInvalidArgument)
	case p.allows(key.life.State):
		return nil
	case choice.Line != "":
		return fault.New(fault.KeyDisabled, "no generation of the line %s: the newest, %d, is %s", p.does, key.life.Generation, key.life.State).
			Audited(fault.ReasonKeyDisabled)
	default:
		return fault.New(fault.KeyDisabled, "the key is %s; only one that is not %s", key.life.State, p.does).Audited(fault.ReasonKeyDisabled)
	}
}

// choose finds the key that is named, or of a line the newest that is in a state
// for the purpose; where none is, the newest.
func (ks *Keys) choose(ctx context.Context, choice keyserver.KeyChoice, what purpose) (newest *heldKey, err error) {
	if choice.Line == "" {
		err := ks.find(ctx, choice.Key, fault.KeyNotFound, &newest)
		return newest, err
	}
	ids, err := ks.line(ctx, choice.Line)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Backward(ids) {
		key, err := ks.held(ctx, id)
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

// line reads the keys of a line through the cache, oldest first. A key that
// succeeds another is announced as a change of the first, too.
func (ks *Keys) line(ctx context.Context, link keyserver.HiddenLink) ([]keyserver.ID, error) {
	system, first, ok := link.Split()
	if !ok || system != ks.System {
		return nil, noLine()
	}
	ids, err := ks.lines.Get(ctx, first, func() ([]keyserver.ID, error) {
		records, err := ks.Store.KeyLine(ctx, first)
		ids := make([]keyserver.ID, len(records))
		for i, record := range records {
			ids[i] = record.ID
		}
		if err == nil && len(ids) == 0 {
			err = noLine()
		}
		return ids, err
	})
	return ids, err
}

func noLine() error {
	return fault.New(fault.KeyNotFound, "the lineage names no line of keys of this key server; a line is named by the hidden link of its first key").
		Audited(fault.ReasonObjectNotFound)
}

// withOlderKeys returns a check that sets others to the older keys of the lineage that a MAC is also compared with: keys
// that can verify and whose ACL grants READ to the caller. It never fails. It counts no use of an entry with a usage
// limit: a verification is one use, of the newest key.
func (ks *Keys) withOlderKeys(choice keyserver.KeyChoice, newest **heldKey, others *[]*heldKey) gate.Check {
	return func(ctx context.Context, who access.Subject) error {
		if choice.Line == "" {
			return nil
		}
		ids, err := ks.line(ctx, choice.Line)
		if err != nil {
			return err
		}
		for _, id := range slices.Backward(ids) {
			if len(*others)+1 == keyserver.MaxTried {
				return nil
			}
			key, err := ks.held(ctx, id)
			if err != nil {
				return err
			}
			if key.life.Generation >= (*newest).life.Generation || checkMACs.unfit(key, choice) != nil {
				continue
			}
			if access.Evaluate(key.acl, who, keyserver.Read, ks.Clock()).Allowed {
				*others = append(*others, key)
			}
		}
		return nil
	}
}
