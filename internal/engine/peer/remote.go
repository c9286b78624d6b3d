package peer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// remote implements keyserver.Federated with calls to a peer. It checks each response, because even a trusted peer may
// have errors.
type remote struct {
	client *Client
	peer   keyserver.TrustedServer
}

var _ keyserver.Federated = remote{}

// Key implements keyserver.Federated.
func (r remote) Key(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (keyserver.KeyMetadata, error) {
	in := &peerpb.KeyRequest{Call: callOf(by), Link: []byte(link)}
	out, err := callUnary(ctx, r, reads, in, peerpb.KeyServerClient.ReadKey)
	if err != nil {
		return keyserver.KeyMetadata{}, err
	}
	meta, ok := keyFrom(out, link)
	if !ok {
		return keyserver.KeyMetadata{}, r.invalidResponse("the metadata of a key")
	}
	return meta, nil
}

// AuthorizeKey implements keyserver.Federated.
func (r remote) AuthorizeKey(ctx context.Context, by keyserver.Caller, use keyserver.Use) (keyserver.Grant, error) {
	in := &peerpb.AuthorizeRequest{Call: callOf(by), Link: []byte(use.Link), Filename: use.Filename}
	out, err := callUnary(ctx, r, uses, in, peerpb.KeyServerClient.Authorize)
	if err != nil {
		return keyserver.Grant{}, err
	}
	return keyserver.Grant{System: r.peer.System, FilenameAudited: out.GetFilenameAudited()}, nil
}

// ACL implements keyserver.Federated.
func (r remote) ACL(ctx context.Context, by keyserver.Caller, link keyserver.HiddenLink) (acl keyserver.ACL, err error) {
	in := &peerpb.KeyRequest{Call: callOf(by), Link: []byte(link)}
	err = callList(ctx, r, in, peerpb.KeyServerClient.ReadACL, func(out *peerpb.ACLResponse) error {
		var ok bool
		if acl, ok = aclFrom(out, link); !ok || !validACL(acl) {
			return r.invalidResponse("an ACL")
		}
		return nil
	})
	if err != nil {
		return keyserver.ACL{}, err
	}
	return acl, nil
}

// GrantACL implements keyserver.Federated.
func (r remote) GrantACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange) error {
	return r.change(ctx, changeTo(peerpb.ChangeACLRequest_KIND_GRANT, callOf(by), change))
}

// AmendACL implements keyserver.Federated.
func (r remote) AmendACL(ctx context.Context, by keyserver.Caller, change keyserver.ACLChange) error {
	return r.change(ctx, changeTo(peerpb.ChangeACLRequest_KIND_AMEND, callOf(by), change))
}

// RevokeACL implements keyserver.Federated.
func (r remote) RevokeACL(ctx context.Context, by keyserver.Caller, in keyserver.ACLRevocation) error {
	return r.change(ctx, changeTo(peerpb.ChangeACLRequest_KIND_REVOKE, callOf(by), keyserver.ACLChange{Link: in.Link, Principal: in.Principal}))
}

func (r remote) change(ctx context.Context, in *peerpb.ChangeACLRequest) error {
	_, err := callUnary(ctx, r, changes, in, peerpb.KeyServerClient.ChangeACL)
	return err
}

// LookupPrincipals implements keyserver.Federated. All pairs must belong to the peer. The result has only principals
// that were requested and that can be shown. If some cannot be shown, the error names them, so that the caller does not
// treat them as deleted.
func (r remote) LookupPrincipals(ctx context.Context, by keyserver.Caller, pairs []keyserver.PrincipalRef) ([]keyserver.Principal, error) {
	asked := make(map[keyserver.PrincipalRef]bool, len(pairs))
	in := &peerpb.LookupRequest{Call: callOf(by)}
	for _, pair := range pairs {
		if !asked[pair] {
			asked[pair] = true
			in.Principals = append(in.Principals, pair.ID.Uint64())
		}
	}
	found := []keyserver.Principal{}
	err := callList(ctx, r, in, peerpb.KeyServerClient.Lookup, func(out *peerpb.LookupResponse) error {
		var unreadable []keyserver.PrincipalRef
		for _, one := range out.GetPrincipals() {
			p := principalFrom(one)
			if !asked[p.Ref()] {
				continue
			}
			asked[p.Ref()] = false
			if presentable(p) {
				found = append(found, p)
			} else {
				unreadable = append(unreadable, p.Ref())
			}
		}
		return r.unreadable(unreadable)
	})
	return found, err
}

// unreadable returns the error for a lookup that found principals which cannot be shown, or nil if list is empty.
func (r remote) unreadable(list []keyserver.PrincipalRef) error {
	if len(list) == 0 {
		return nil
	}
	return fault.New(fault.OpFailed, "the peer %d returned principals that cannot be shown, for example %s", r.peer.System, list[0]).
		Audited(fault.ReasonFailed).Because(&keyserver.UnreadableError{Principals: list})
}

// callOf returns the part of a request that is the same for all methods. If the key server itself sends the request,
// the call has no principal.
func callOf(by keyserver.Caller) *peerpb.Call {
	c := &peerpb.Call{RequestId: by.RequestID, Nonce: by.Peer.Key[:nonceLen]}
	if by.Kind != keyserver.InternalSession {
		c.Principal = &peerpb.Principal{Ref: refTo(by.Principal), Type: string(by.Type), Name: by.Name}
	}
	for _, g := range by.Peer.Groups {
		c.Groups = append(c.Groups, g.ID.Uint64())
	}
	if !by.Actor.ID.IsZero() {
		c.Actor = refTo(by.Actor)
	}
	return c
}

// method is a unary call of the generated client.
type method[In, Out any] func(peerpb.KeyServerClient, context.Context, *In, ...grpc.CallOption) (*Out, error)
