package schema

import "time"

// ChangesQuery is a read of the change feed.
type ChangesQuery struct {
	After *int64 `query:"after" limit:"0..9007199254740992" doc:"The cursor of an earlier answer; 0 or left out reads from the start."`
	Wait  *int   `query:"wait" limit:"0..60" doc:"Seconds to wait for a change when there is none yet."`
}

// LongPoll returns how long the response may wait for a change.
func (q ChangesQuery) LongPoll() time.Duration {
	if q.Wait == nil {
		return 0
	}
	return time.Duration(*q.Wait) * time.Second
}

// Change is one committed change of state.
type Change struct {
	Seq    int64  `json:"seq" doc:"Place in the feed, without gaps."`
	Kind   string `json:"kind" doc:"The noun: trustedCA, trustedServer, principalTrust, aclTemplate, templatedDirectory, role, principal, key, session, certificate, revocation."`
	ID     HexID  `json:"id" doc:"Of the object, in hexadecimal whatever spelling its routes take; of a trusted server, its system id. Zero with kind key: more keys than are named, any access control list may be different."`
	Action string `json:"action" enum:"created,updated,deleted"`
}

// ChangePage is the response of a read of the change feed.
type ChangePage struct {
	Cursor  int64    `json:"cursor" doc:"Send it as after."`
	Changes []Change `json:"changes"`
	Reset   bool     `json:"reset" doc:"The cursor is too old: read the state anew."`
}
