package peer

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of responses of peers. Only ACLs and lookups have long responses, of up to maxList bytes. Their number at one
// time is limited, too.
const (
	maxAnswer    = 16 << 10
	maxList      = 8 << 20
	maxEntries   = 65536 // of an ACL
	maxRoles     = 1024  // of a principal
	maxLists     = 8     // from all peers at once
	maxPeerLists = 2     // from one peer at once
)

// lists is the semaphore of long responses.
type lists chan struct{}

// enter waits until another long response may be received, or returns the error of ctx.
func (l lists) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lists) leave() { <-l }

// callList is callUnary for a long response. It occupies a place for long responses until take returns.
func callList[In, Out any](ctx context.Context, r remote, in *In, call method[In, Out], take func(*Out) error) error {
	p, err := r.client.enter(ctx, r.peer)
	if err != nil {
		return r.unreached(err)
	}
	waiting, cancel := context.WithTimeout(ctx, r.client.Timeout)
	defer cancel()
	for _, places := range []lists{p.lists, r.client.lists} {
		if places.enter(waiting) != nil {
			p.leave(r.client.Clock(), unknown)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return tooMany("too many long responses of peers are being received; try again")
		}
		defer places.leave()
	}
	out, err := attempt(ctx, r, p, reads, in, call, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return err
	}
	return take(out)
}

// invalidResponse returns the error for an invalid response. what describes a valid response.
func (r remote) invalidResponse(what string) error {
	return fault.New(fault.OpFailed, "the peer %d returned an invalid response; expected %s", r.peer.System, what).Audited(fault.ReasonFailed)
}

// Numbers of the repeated fields in long responses (peer.proto).
const (
	aclEntries       protowire.Number = 3
	lookupPrincipals protowire.Number = 1
)

// atMost returns an error if the encoded list has more than most elements. It counts them before decoding: an encoded
// element can have only two bytes, but takes a hundred times as much memory when decoded.
func atMost(list []byte, element protowire.Number, most int) error {
	for n := 0; len(list) > 0; {
		number, kind, tag := protowire.ConsumeTag(list)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		value := protowire.ConsumeFieldValue(number, kind, list[tag:])
		if value < 0 {
			return protowire.ParseError(value)
		}
		if number == element {
			if n++; n > most {
				return fmt.Errorf("the list has more than %d elements", most)
			}
		}
		list = list[tag+value:]
	}
	return nil
}

// keyFrom converts the metadata of a key from a peer. It reports false if the algorithm is unknown or a value is
// impossible.
func keyFrom(in *peerpb.KeyResponse, link keyserver.HiddenLink) (keyserver.KeyMetadata, bool) {
	meta := keyserver.KeyMetadata{Link: link, Algorithm: keyserver.Algorithm(in.GetAlgorithm()), KeyBytes: int(in.GetKeyBytes())}
	info, ok := keyserver.Algorithms[meta.Algorithm]
	return meta, ok && lifeFrom(in.GetLife(), &meta) && meta.KeyBytes >= info.MinLen && meta.KeyBytes <= info.MaxLen
}

// validACL reports whether an ACL from a peer is valid: each entry is valid, and each principal has only one entry.
func validACL(acl keyserver.ACL) bool {
	seen := make(map[keyserver.PrincipalRef]bool, len(acl.Entries))
	for _, e := range acl.Entries {
		switch {
		case e.Principal.ID.IsZero(), seen[e.Principal],
			e.Rights == 0, e.Rights&^keyserver.AllRights != 0,
			e.MaxUsage < keyserver.NoUsageLimit, e.Used < 0:
			return false
		}
		seen[e.Principal] = true
	}
	return true
}

// presentable reports whether a principal from a peer has values that can be shown.
func presentable(p keyserver.Principal) bool {
	return p.Type.ClassName() != "" && p.Name != "" && len(p.Name) <= keyserver.MaxPrincipalName &&
		!strings.ContainsFunc(p.Name, unicode.IsControl) &&
		len(p.Roles) <= maxRoles && len(p.Groups) <= keyserver.MaxGroups
}
