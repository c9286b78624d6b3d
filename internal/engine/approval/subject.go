package approval

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/rowmac"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Limits of the objects of a request, including its asker.
const (
	MaxSubjects = 300
	// MaxRows is the maximum number of database rows of all objects: principals, certificates and other rows.
	MaxRows = 1024
)

// SubjectState is the state of an object that a request names, at one time.
type SubjectState struct {
	keyserver.Subject
	Found  bool
	Name   string                  // for display; empty if unknown
	Type   keyserver.PrincipalType // of a principal; names are unique only per type
	People int                     // number of members of a group, or of holders of a role
	Digest [32]byte
	// Changed reports that the object differs from its state when approval was requested.
	Changed bool
	// Withheld reports that the caller may not read the object. The caller itself sent its name.
	Withheld bool
}

// ByID returns the reference to an object that has an id.
func ByID(kind keyserver.SubjectKind, id keyserver.ID) keyserver.Subject {
	return keyserver.Subject{Kind: kind, Key: id.Hex()}
}

// At returns the reference to an object that has an id at a given key server.
func At(kind keyserver.SubjectKind, system keyserver.SystemID, id keyserver.ID) keyserver.Subject {
	return keyserver.Subject{Kind: kind, Key: rowmac.SystemName(system) + "/" + id.Hex()}
}

// OfPeer returns the reference to a peer.
func OfPeer(system keyserver.SystemID) keyserver.Subject {
	return keyserver.Subject{Kind: keyserver.PeerSubject, Key: rowmac.SystemName(system)}
}

// OfOwner returns the reference to the owner mark of an object.
func OfOwner(o keyserver.Object) keyserver.Subject {
	return keyserver.Subject{Kind: keyserver.OwnerSubject, Key: o.String()}
}

// looker is a store or a transaction.
type looker interface {
	Recording() *sqlstore.RecordingReads
	CredentialsOf(ctx context.Context, ids []keyserver.ID) ([]*rowmac.Row, error)
}

// readSubjects reads the objects that the names refer to. It reports false if the objects have more than MaxRows rows.
func readSubjects(ctx context.Context, in looker, names []keyserver.Subject) ([]SubjectState, bool, error) {
	list, rows := make([]SubjectState, len(names)), 0
	for i, name := range names {
		read, known := subjectReaders[name.Kind]
		if !known {
			return nil, false, fmt.Errorf("the approval has an object of the unknown kind %q", name.Kind)
		}
		g := &subjectReader{RecordingReads: in.Recording(), in: in, room: MaxRows + 1 - rows}
		err := read(ctx, g, name.Key)
		if rows += len(g.Rows) + len(g.more); err == nil && rows > MaxRows {
			return nil, false, nil
		}
		if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
			return nil, false, err
		}
		list[i] = SubjectState{Subject: name, Found: err == nil, Name: g.name, Type: g.class, People: g.people, Digest: rowmac.Digest(append(g.Rows, g.more...))}
	}
	return list, true, nil
}

// subjectReader reads one object. It collects the rows that RecordingReads records, and in more the rows that RecordingReads
// does not record.
type subjectReader struct {
	*sqlstore.RecordingReads
	in     looker // the reader that RecordingReads records
	more   []*rowmac.Row
	room   int // maximum number of rows to read
	name   string
	class  keyserver.PrincipalType // of a principal
	people int
}

// subjectReaders maps each kind of object to the function that reads such an object. If the object does not exist, the
// function returns ErrNotFound. The rows that it has read until then count in the digest.
var subjectReaders = map[keyserver.SubjectKind]func(ctx context.Context, g *subjectReader, key string) error{
	keyserver.AskerSubject: func(ctx context.Context, g *subjectReader, key string) error {
		id, _, _ := idOf(key)
		p, err := g.Principal(ctx, id)
		if g.Rows = nil; err != nil { // without the principal's row: its roles are checked at the execution
			return err
		}
		g.name, g.class = p.Name, p.Type
		return g.readCredentials(ctx, []keyserver.ID{id})
	},
	keyserver.PrincipalSubject: func(ctx context.Context, g *subjectReader, key string) error {
		id, system, elsewhere := idOf(key)
		p, err := g.Principal(ctx, id)
		switch {
		case err == nil && (!elsewhere || p.System == system):
			return g.principal(ctx, p)
		case err != nil && !errors.Is(err, sqlstore.ErrNotFound), !elsewhere:
			return err
		}
		g.Rows = nil // here, another principal has this id
		return g.peer(ctx, system)
	},
	keyserver.GroupSubject: func(ctx context.Context, g *subjectReader, key string) error {
		id, _, _ := idOf(key)
		p, err := g.Principal(ctx, id)
		if err != nil {
			return err
		}
		g.name, g.class = p.Name, p.Type
		return g.rights(ctx, p)
	},
	keyserver.RoleSubject: singleRowReader((*sqlstore.RecordingReads).Role, func(r keyserver.Role) string { return r.Name }),
	keyserver.HoldersSubject: func(ctx context.Context, g *subjectReader, key string) error {
		id, _, _ := idOf(key)
		r, err := g.Role(ctx, id)
		if err != nil {
			return err
		}
		g.name = r.Name
		holders, err := g.HoldersOf(ctx, id, g.room)
		if err != nil {
			return err
		}
		g.people = len(holders)
		return g.readCredentials(ctx, holders)
	},
	keyserver.KeySubject: func(ctx context.Context, g *subjectReader, key string) error {
		link, _ := canonical.Decode(key)
		system, id, ok := keyserver.HiddenLink(link).Split()
		if !ok {
			return sqlstore.ErrNotFound
		}
		k, acl, err := g.KeyWithACL(ctx, id)
		if errors.Is(err, sqlstore.ErrNotFound) {
			return g.peer(ctx, system)
		}
		g.name = string(k.Algorithm)
		g.Rows = []*rowmac.Row{rowmac.StoredKey(rowmac.KeyRow{ // without the wrapping, which a rewrap changes
			ID: k.ID, Algorithm: k.Algorithm, KeyBytes: k.KeyBytes, ACL: k.ACL, CreatedAt: k.CreatedAt, Life: k.Life, Entries: acl.Entries,
		})}
		return err
	},
	keyserver.PeerSubject: func(ctx context.Context, g *subjectReader, key string) error {
		return g.peer(ctx, systemOf(key))
	},
	keyserver.TrustedCASubject: singleRowReader((*sqlstore.RecordingReads).TrustedCA, func(c keyserver.Certificate) string { return c.Subject }),
	keyserver.CertificateSubject: func(ctx context.Context, g *subjectReader, key string) error {
		var digest keyserver.Digest
		_, _ = hex.Decode(digest[:], []byte(key))
		c, err := g.Certificate(ctx, digest)
		g.name = c.Subject
		return err
	},
	keyserver.TransportSubject: func(ctx context.Context, g *subjectReader, key string) error {
		p, err := g.PrincipalByName(ctx, keyserver.CertificatePrincipal, key)
		if err != nil {
			return err
		}
		return g.principal(ctx, p)
	},
	keyserver.TemplateSubject: singleRowReader((*sqlstore.RecordingReads).ACLTemplate, func(t keyserver.ACLTemplate) string { return t.Name }),
	keyserver.DirectorySubject: func(ctx context.Context, g *subjectReader, key string) error {
		id, _, _ := idOf(key)
		d, err := g.TemplatedDirectory(ctx, id)
		if err != nil {
			return err
		}
		g.name = d.Path
		_, err = g.ACLTemplate(ctx, d.Template)
		return err
	},
	keyserver.TrustSubject: func(ctx context.Context, g *subjectReader, key string) error {
		id, _, _ := idOf(key)
		rows, err := g.PrincipalTrusts(ctx, keyserver.PrincipalTrustFilter{ID: &id})
		if err == nil && len(rows) == 0 {
			err = sqlstore.ErrNotFound
		}
		return err
	},
	keyserver.OwnerSubject: func(ctx context.Context, g *subjectReader, key string) error {
		kind, text, _ := strings.Cut(key, " ")
		id, _ := values.ParseHexID(text)
		mark, err := g.Owner(ctx, keyserver.Object{Kind: keyserver.ChangeKind(kind), ID: id})
		g.name = mark.Owner
		return err
	},
}

// singleRowReader returns a function that reads an object that has only one row.
func singleRowReader[T any](read func(*sqlstore.RecordingReads, context.Context, keyserver.ID) (T, error), name func(T) string) func(context.Context, *subjectReader, string) error {
	return func(ctx context.Context, g *subjectReader, key string) error {
		id, _, _ := idOf(key)
		one, err := read(g.RecordingReads, ctx, id)
		g.name = name(one)
		return err
	}
}

// rights reads the roles of a principal and of its groups, with their operations. An approved change may give these
// operations, for example if it adds a member to the group, or lets another party log in as the principal.
func (g *subjectReader) rights(ctx context.Context, p keyserver.Principal) error {
	roles, err := g.RolesInForce(ctx, p)
	for _, id := range roles {
		if err == nil {
			_, err = g.Role(ctx, id)
		}
		if errors.Is(err, sqlstore.ErrNotFound) {
			err = nil // a deleted role grants nothing
		}
	}
	return err
}

// principal reads the rights and certificates of a principal and, for a group, the credentials of its members. The
// caller has already read the principal's own row.
func (g *subjectReader) principal(ctx context.Context, p keyserver.Principal) error {
	g.name, g.class = p.Name, p.Type
	if err := g.rights(ctx, p); err != nil {
		return err
	}
	if _, err := g.CertificatesOf(ctx, p.ID, g.room); err != nil || p.Type != keyserver.GroupPrincipal {
		return err
	}
	members, err := g.MembersOf(ctx, p.ID, g.room)
	if err != nil {
		return err
	}
	g.people = len(members)
	return g.readCredentials(ctx, members)
}

// readCredentials reads the credentials of the principals with these ids.
func (g *subjectReader) readCredentials(ctx context.Context, ids []keyserver.ID) (err error) {
	g.more, err = g.in.CredentialsOf(ctx, ids)
	return err
}

func (g *subjectReader) peer(ctx context.Context, system keyserver.SystemID) error {
	s, err := g.TrustedServer(ctx, system)
	if err != nil {
		return err
	}
	p, err := g.Principal(ctx, s.Transport)
	if err == nil {
		err = g.principal(ctx, p)
	}
	g.name = cmp.Or(s.FriendlyName, s.Name)
	return err
}

// idOf parses an id, and the system id before it if there is one. An invalid id becomes zero, which no object has.
func idOf(key string) (id keyserver.ID, system keyserver.SystemID, elsewhere bool) {
	before, text, elsewhere := strings.Cut(key, "/")
	if !elsewhere {
		text = before
	}
	id, _ = values.ParseHexID(text)
	return id, systemOf(before), elsewhere
}

func systemOf(text string) keyserver.SystemID {
	n, _ := strconv.ParseUint(text, 10, 32)
	return keyserver.SystemID(n)
}

// visibleSubjects returns the part of a list that the caller may see. A request for approval may name objects on which its asker
// has no right. Therefore a caller that may not read approvals gets only the names that it sent, and nothing about the
// objects. shown does not call the authorizer, because nothing is refused.
func visibleSubjects(ctx context.Context, in reader, by keyserver.Caller, list []SubjectState) ([]SubjectState, error) {
	operations, err := operationsOf(ctx, in, by.Principal)
	if err != nil || slices.Contains(operations, keyserver.OpReadApprovals.ID) {
		return list, err
	}
	for i, l := range list {
		list[i] = SubjectState{Subject: l.Subject, Withheld: true}
	}
	return list, nil
}

// recordSubjects reads the asker and the objects that a request names. It returns the digests of these objects for storage.
func recordSubjects(ctx context.Context, in looker, asker keyserver.ID, names []keyserver.Subject) ([]keyserver.ApprovalSubject, []SubjectState, error) {
	names = append([]keyserver.Subject{ByID(keyserver.AskerSubject, asker)}, names...)
	for i := 0; i < len(names); i++ {
		names = append(names[:i+1], slices.DeleteFunc(names[i+1:], func(other keyserver.Subject) bool { return other == names[i] })...)
	}
	if len(names) > MaxSubjects {
		return nil, nil, fault.New(fault.InvalidArgument, "the request names %d objects, but an approval covers at most %d; split the request", len(names)-1, MaxSubjects-1).
			Audited(fault.ReasonInvalidArgument)
	}
	list, ok, err := readSubjects(ctx, in, names)
	if err == nil && !ok {
		err = fault.New(fault.InvalidArgument, "the objects of the request have more than %d principals and certificates, the limit of an approval; split the request or use smaller groups", MaxRows).
			Audited(fault.ReasonInvalidArgument)
	}
	if err != nil {
		return nil, nil, err
	}
	kept := make([]keyserver.ApprovalSubject, len(list))
	for i, l := range list {
		kept[i] = keyserver.ApprovalSubject{Subject: l.Subject, Digest: l.Digest}
	}
	return kept, list, nil
}

// rereadSubjects reads the current state of the objects that an approval names.
func rereadSubjects(ctx context.Context, in looker, a keyserver.Approval) ([]SubjectState, error) {
	names := make([]keyserver.Subject, len(a.Subjects))
	for i, s := range a.Subjects {
		names[i] = s.Subject
	}
	list, ok, err := readSubjects(ctx, in, names)
	if err != nil {
		return nil, err
	}
	if !ok { // the objects have more rows than at the request, so all count as changed
		list = make([]SubjectState, len(names))
		for i := range list {
			list[i].Subject, list[i].Found = names[i], true
		}
	}
	for i := range list {
		list[i].Changed = list[i].Digest != a.Subjects[i].Digest
	}
	return list, nil
}

// unchanged returns an error if an object has changed since approval was requested: the approvers did not see the new
// state.
func unchanged(a keyserver.Approval, now []SubjectState) error {
	if len(a.Subjects) == 0 {
		return invalidState("the request was stored by a version that did not record its objects; request approval again")
	}
	for _, l := range now {
		if l.Changed {
			return invalidState(descriptions[l.Kind] + l.Key + " has changed since approval was requested; request approval again")
		}
	}
	return nil
}

// descriptions name each kind of object in errors.
var descriptions = map[keyserver.SubjectKind]string{
	keyserver.AskerSubject:       "asker, or its credentials, ",
	keyserver.PrincipalSubject:   "principal ",
	keyserver.GroupSubject:       "group ",
	keyserver.RoleSubject:        "role ",
	keyserver.HoldersSubject:     "role, or a principal with it, ",
	keyserver.KeySubject:         "key, or its ACL, ",
	keyserver.PeerSubject:        "peer ",
	keyserver.TrustedCASubject:   "trusted CA ",
	keyserver.CertificateSubject: "certificate ",
	keyserver.TransportSubject:   "transport principal ",
	keyserver.TemplateSubject:    "ACL template ",
	keyserver.DirectorySubject:   "templated directory ",
	keyserver.TrustSubject:       "principal trust ",
	keyserver.OwnerSubject:       "owner mark of ",
}

// Unchanged returns an error if the objects of an approval have changed since approval was requested. The approved
// operation calls it in its own transaction.
func Unchanged(ctx context.Context, in interface {
	looker
	Approval(ctx context.Context, id keyserver.ID) (keyserver.Approval, error)
}, id keyserver.ID,
) error {
	a, err := in.Approval(ctx, id)
	if err != nil {
		return missing(err, id)
	}
	now, err := rereadSubjects(ctx, in, a)
	if err != nil {
		return err
	}
	return unchanged(a, now)
}
