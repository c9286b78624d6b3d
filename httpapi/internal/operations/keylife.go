package operations

import (
	"context"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// defaultKeys is the number of keys of a page if the request has no limit.
const defaultKeys = 100

func listKeys(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyQuery) (schema.KeyListing, error) {
	f := keyserver.KeyFilter{Limit: defaultKeys}
	if in.Lineage != nil {
		f.Lineage = keyserver.HiddenLink(*in.Lineage)
	}
	if in.State != nil {
		f.State = keyserver.KeyState(*in.State)
	}
	if in.Limit != nil {
		f.Limit = *in.Limit
	}
	if in.After != nil {
		f.After = keyserver.HiddenLink(*in.After)
	}
	page, err := ops.ListKeys(ctx, by, f)
	if err != nil {
		return schema.KeyListing{}, err
	}
	out := schema.KeyListing{Count: len(page.Keys), Keys: Convert(page.Keys, keyFactsOf), Detail: "the last page"}
	if page.Next != "" {
		out.Next, out.Detail = (*schema.HiddenLink)(&page.Next), "there may be more; request them with after set to next"
	}
	return out, nil
}

func disableKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRequest) (schema.KeyStateSaved, error) {
	return changeKeyState(ctx, ops, by, in.TTag, keyserver.DisableKey, 0)
}

func enableKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRequest) (schema.KeyStateSaved, error) {
	return changeKeyState(ctx, ops, by, in.TTag, keyserver.EnableKey, 0)
}

func restoreKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRequest) (schema.KeyStateSaved, error) {
	return changeKeyState(ctx, ops, by, in.TTag, keyserver.RestoreKey, 0)
}

func destroyKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.DestroyKeyRequest) (schema.KeyStateSaved, error) {
	days := keyserver.DefaultDestroyDays
	if in.AfterDays != nil {
		days = *in.AfterDays
	}
	return changeKeyState(ctx, ops, by, in.TTag, keyserver.DestroyKey, days)
}

func changeKeyState(ctx context.Context, ops *verified.Service, by keyserver.Caller, link schema.HiddenLink, act keyserver.KeyAction, days int) (schema.KeyStateSaved, error) {
	r, err := ops.ChangeKeyState(ctx, by, keyserver.KeyStateChange{Link: keyserver.HiddenLink(link), Action: act, Days: days})
	return schema.KeyStateSaved{
		TTag: schema.HiddenLink(r.Key.Link), Saved: r.Saved, State: string(r.Key.Life.State), DestroyAt: endOf(r.Key.Life), Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func rotateKey(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRequest) (schema.KeyRotated, error) {
	r, err := ops.RotateKey(ctx, by, keyserver.HiddenLink(in.TTag))
	return schema.KeyRotated{KeyFacts: keyFactsOf(r.Key), Saved: r.Saved, Verdict: schema.Verdict{Detail: r.Detail}}, err
}

func setKeyRotation(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.KeyRotationRequest) (schema.KeyRotationSaved, error) {
	change := keyserver.KeyRotationChange{Link: keyserver.HiddenLink(in.TTag), Rotation: keyserver.KeyRotation{
		Every: in.EveryDays, VerifyOnly: in.VerifyOnlyDays, DestroyAfter: in.DestroyAfterDays,
	}}
	r, err := ops.SetKeyRotation(ctx, by, change)
	facts := keyFactsOf(r.Key)
	return schema.KeyRotationSaved{
		TTag: facts.TTag, Lineage: facts.Lineage, Saved: r.Saved, Rotation: facts.Rotation, Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func keyFactsOf(m keyserver.KeyMetadata) schema.KeyFacts {
	out := schema.KeyFacts{TTag: schema.HiddenLink(m.Link), KeyBytes: &m.KeyBytes, Algorithm: known(string(m.Algorithm)), State: known(string(m.Life.State))}
	if info, ok := keyserver.Algorithms[m.Algorithm]; ok {
		out.AlgID, out.IVBytes = &info.Number, &info.IVLength
	}
	if out.State == nil { // the key belongs to a peer that does not send the state
		return out
	}
	if system, _, ok := m.Link.Split(); ok {
		lineage := schema.HiddenLink(values.NewHiddenLink(system, m.Life.Lineage))
		out.Lineage = &lineage
	}
	out.Generation, out.Exportable, out.Uses = &m.Life.Generation, &m.Life.Exportable, &m.Uses
	out.CreatedAt, out.LastUsedAt, out.DestroyAt = instant(m.CreatedAt), instant(m.LastUsedAt), endOf(m.Life)
	if !m.Rotation.IsZero() {
		out.Rotation = &schema.KeyRotation{EveryDays: m.Rotation.Every, VerifyOnlyDays: m.Rotation.VerifyOnly, DestroyAfterDays: m.Rotation.DestroyAfter}
	}
	return out
}

// endOf returns the time at which the bytes of a key will be or were destroyed.
func endOf(life keyserver.KeyLife) *time.Time {
	if life.State == keyserver.KeyDestroyed {
		return instant(life.StateAt)
	}
	return instant(life.DestroyAt)
}

// instant returns the time in UTC, or nil for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
