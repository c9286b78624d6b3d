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

// Bounds of what peers answer. Only lists are long: an access control list, and
// the principals of a lookup. Some of them may be on their way at once.
const (
	maxAnswer    = 16 << 10
	maxList      = 8 << 20
	maxEntries   = 65536 // of an access control list
	maxRoles     = 1024  // of a principal
	maxLists     = 8     // from all peers
	maxPeerLists = 2     // from one
)

// lists are the places of long answers.
type lists chan struct{}

// enter waits for a place.
func (l lists) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lists) leave() { <-l }

// askList is ask for a long answer, which is taken while its place is held.
func askList[In, Out any](ctx context.Context, r remote, in *In, call method[In, Out], take func(*Out) error) error {
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
			return tooMany("as many lists of peers are on their way as may be; try again")
		}
		defer places.leave()
	}
	out, err := attempt(ctx, r, p, reads, in, call, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return err
	}
	return take(out)
}

// nonsense is for an answer that no key server of ours gives.
func (r remote) nonsense(what string) error {
	return fault.New(fault.OpFailed, "the peer %d answered something that is not %s", r.peer.System, what).Audited(fault.ReasonFailed)
}

// The fields that make an answer a list.
const (
	aclEntries       protowire.Number = 3
	lookupPrincipals protowire.Number = 1
)

// atMost refuses a list with more elements than may be before any of them is
// made: two bytes are enough for one, and it takes a hundred times as much.
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
				return fmt.Errorf("a list of more than %d elements", most)
			}
		}
		list = list[tag+value:]
	}
	return nil
}

// keyFrom reads the metadata of a key, which is of an algorithm that is known.
func keyFrom(in *peerpb.KeyResponse, link keyserver.HiddenLink) (keyserver.KeyMetadata, bool) {
	meta := keyserver.KeyMetadata{Link: link, Algorithm: keyserver.Algorithm(in.GetAlgorithm()), KeyBytes: int(in.GetKeyBytes())}
	info, ok := keyserver.Algorithms[meta.Algorithm]
	return meta, ok && lifeFrom(in.GetLife(), &meta) && meta.KeyBytes >= info.MinLen && meta.KeyBytes <= info.MaxLen
}

// possible reports whether a list could be one: each entry is one that could
// have been granted, and no principal has two.
func possible(acl keyserver.ACL) bool {
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

// presentable reports whether a principal can be shown as it is.
func presentable(p keyserver.Principal) bool {
	return p.Type.ClassName() != "" && p.Name != "" && len(p.Name) <= keyserver.MaxPrincipalName &&
		!strings.ContainsFunc(p.Name, unicode.IsControl) &&
		len(p.Roles) <= maxRoles && len(p.Groups) <= keyserver.MaxGroups
}
