package sqlstore

import (
	"context"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/store/sqldb"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Queries for lists of principals. principalsFrom and principalsBetween read a range of
// the index on type and name; principalsBetween is for names with a prefix.
var (
	principalsFrom = principalsQuery(`principals p WHERE p.type = $1 AND p.name >= $2
		ORDER BY p.name LIMIT $3 OFFSET $4`, `name, id`)
	principalsBetween = principalsQuery(`principals p WHERE p.type = $1 AND p.name >= $2 AND p.name < $5
		ORDER BY p.name LIMIT $3 OFFSET $4`, `name, id`)
	principalsByID = principalsQuery(`principals p WHERE p.id IN (`+sqldb.Numbered()+`)`, `id, name`)
	groupMembers   = principalsQuery(`group_members m JOIN principals p ON p.id = m.member_id WHERE m.group_id = $1
		ORDER BY m.member_id LIMIT $2 OFFSET $3`, `id, name`)
)

// Principals reads the principals that a filter selects, sorted by the bytes of
// their names. f.Limit must be positive.
func (r reads) Principals(ctx context.Context, f keyserver.PrincipalFilter) ([]keyserver.Principal, error) {
	args := []any{string(f.Type), f.Prefix, f.Limit, f.Offset}
	if end, ok := prefixEnd(f.Prefix); ok {
		return r.principals(ctx, principalsBetween, append(args, end))
	}
	return r.principals(ctx, principalsFrom, args)
}

// prefixEnd returns the first text, in the order of bytes, after all texts with the
// prefix. It returns false if there is no such text: the prefix is empty, or consists
// only of the last Unicode character.
func prefixEnd(prefix string) (string, bool) {
	for len(prefix) > 0 {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if last < utf8.MaxRune {
			if last++; !utf8.ValidRune(last) { // surrogates have no encoding
				last = 0xe000
			}
			return prefix + string(last), true
		}
	}
	return "", false
}

// PrincipalsByID reads principals by their ids, in any order. It omits ids that do not exist.
func (r reads) PrincipalsByID(ctx context.Context, ids []keyserver.ID) ([]keyserver.Principal, error) {
	list := []keyserver.Principal{}
	for ids := keyserver.NormalizeIDs(ids); len(ids) > 0; ids = ids[min(sqldb.LookupSize, len(ids)):] {
		found, err := r.principals(ctx, principalsByID, sqldb.Lookup(ids))
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// GroupMembers reads up to limit members of a group after the first offset members, in the order of ids.
func (r reads) GroupMembers(ctx context.Context, group keyserver.ID, limit, offset int) ([]keyserver.Principal, error) {
	return r.principals(ctx, groupMembers, []any{group[:], limit, offset})
}
