package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// ownerPage is the number of owner marks in a page if the request has no limit.
const ownerPage = 100

func listOwners(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.OwnerQuery) (schema.OwnerList, error) {
	f := keyserver.OwnerFilter{Kind: keyserver.ChangeKind(in.Kind), Limit: ownerPage}
	if in.After != nil {
		f.After = keyserver.ID(*in.After)
	}
	if in.Limit != nil {
		f.Limit = *in.Limit
	}
	page, err := ops.Owners(ctx, by, f)
	if err != nil {
		return schema.OwnerList{}, err
	}
	out := schema.OwnerList{Count: len(page.Marks), Owners: Convert(page.Marks, ownerOf), Detail: "the last page"}
	if !page.Next.IsZero() {
		out.Next, out.Detail = (*schema.HexID)(&page.Next), "there are more; request them with after set to next"
	}
	return out, nil
}

func getOwner(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.OwnedObject) (schema.OwnerMark, error) {
	mark, err := ops.Owner(ctx, by, objectOf(in.Kind, in.ID))
	return ownerOf(mark), err
}

func setOwner(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.SetOwnerRequest) (schema.OwnerSaved, error) {
	r, err := ops.SetOwner(ctx, by, keyserver.OwnerChange{Object: objectOf(in.Kind, in.ID), Owner: in.Owner, Expect: in.Expect})
	return schema.OwnerSaved{OwnerMark: ownerOf(r.Mark), Saved: r.Saved, Verdict: schema.Verdict{Detail: r.Detail}}, err
}

func releaseOwner(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ReleaseOwnerRequest) (schema.OwnerReleased, error) {
	r, err := ops.ReleaseOwner(ctx, by, keyserver.OwnerRelease{Object: objectOf(in.Kind, in.ID), Expect: in.Expect})
	return schema.OwnerReleased{OwnerMark: ownerOf(r.Mark), Gone: r.Gone, Verdict: schema.Verdict{Detail: r.Detail}}, err
}

func objectOf(kind string, id schema.HexID) keyserver.Object {
	return keyserver.Object{Kind: keyserver.ChangeKind(kind), ID: keyserver.ID(id)}
}

func ownerOf(m keyserver.OwnerMark) schema.OwnerMark {
	out := schema.OwnerMark{Kind: string(m.Object.Kind), ID: schema.HexID(m.Object.ID), Owner: m.Owner}
	if m.Owner != "" {
		since := m.Since.UTC()
		out.Since = &since
	}
	return out
}
