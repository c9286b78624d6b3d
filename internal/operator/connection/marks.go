package connection

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// Marks reads and writes the owner marks of the objects of one kind.
type Marks struct {
	kind     string
	formatID func(schema.HexID) string
	parse    func(id string) (schema.HexID, error)
	list     List[schema.OwnerMark]
}

// MarksFeed returns the kind that the change feed uses for the owner marks of a kind.
func MarksFeed(kind string) string { return kind + "Owner" }

// NewMarks returns the Marks of a kind. spell formats an id of the key server like the status of the kind's objects,
// and parse is its inverse.
func NewMarks(kind string, spell func(schema.HexID) string, parse func(string) (schema.HexID, error)) *Marks {
	return &Marks{kind: kind, parse: parse, list: List[schema.OwnerMark]{
		Name: MarksFeed(kind),
		Read: func(ctx context.Context, c *Connection) ([]schema.OwnerMark, error) { return readMarks(ctx, c, kind) },
		Keys: func(m schema.OwnerMark) []string { return []string{spell(m.ID), ByOwner(m.Owner)} },
	}, formatID: spell}
}

// ByOwner returns the key that finds the mark of an owner in a Listing. If an owner has several marks, the key finds
// the first.
func ByOwner(owner string) string { return "owner:" + owner }

// ID returns the id in a mark, formatted like the status of the kind's objects.
func (m *Marks) ID(mark schema.OwnerMark) string { return m.formatID(mark.ID) }

// Of returns the connection's listing.
func (m *Marks) Of(c *Connection) *Listing[schema.OwnerMark] { return m.list.Of(c) }

// Set sets the owner mark of an object. expect is the owner that the present mark must have.
func (m *Marks) Set(ctx context.Context, c *Connection, id, owner, expect string) error {
	at, err := m.object(id)
	if err != nil {
		return err
	}
	saved, err := c.Admin.SetOwner(ctx, schema.SetOwnerRequest{OwnedObject: at, Owner: owner, Expect: expect})
	if err != nil {
		return err
	}
	m.Of(c).Put(saved.OwnerMark)
	return nil
}

// Release removes the owner's mark from an object. A missing mark is not an error.
func (m *Marks) Release(ctx context.Context, c *Connection, id, owner string) error {
	at, err := m.object(id)
	if err != nil {
		return err
	}
	if _, err := c.Admin.ReleaseOwner(ctx, schema.ReleaseOwnerRequest{OwnedObject: at, Expect: owner}); err != nil && !IsGone(err) {
		return err
	}
	m.Of(c).Drop(id)
	return nil
}

// RecordCreated records the mark of an object that was created with this mark.
func (m *Marks) RecordCreated(c *Connection, id, owner string) {
	if at, err := m.object(id); err == nil {
		m.Of(c).Put(schema.OwnerMark{Kind: at.Kind, ID: at.ID, Owner: owner})
	}
}

func (m *Marks) object(id string) (schema.OwnedObject, error) {
	hex, err := m.parse(id)
	return schema.OwnedObject{Kind: m.kind, ID: hex}, err
}

// IsUnsupported reports whether an error means that the key server does not support the call.
func IsUnsupported(err error) bool { return client.IsUnsupported(err) }

// markPages is the maximum number of pages of marks that are read: a million objects.
const markPages = 1000

func readMarks(ctx context.Context, c *Connection, kind string) ([]schema.OwnerMark, error) {
	limit := 1000
	in := schema.OwnerQuery{Kind: kind, Limit: &limit}
	var all []schema.OwnerMark
	for range markPages {
		page, err := c.Admin.ListOwners(ctx, in)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Owners...)
		if page.Next == nil {
			return all, nil
		}
		in.After = page.Next
	}
	return nil, NewProblem(progressing, "the key server has more than %d owner marks of kind %s", markPages*limit, kind)
}
