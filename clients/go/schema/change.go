package schema

import "time"

// ChangesQuery is a read of the change feed.
type ChangesQuery struct {
	After *int64 `query:"after" limit:"0..9007199254740992" doc:"Cursor from an earlier response; 0 or omitted: from the start."`
	Wait  *int   `query:"wait" limit:"0..60" doc:"Seconds to wait for a change if there is none yet."`
}

// LongPoll returns how long the key server may wait for a change before it responds.
func (q ChangesQuery) LongPoll() time.Duration {
	if q.Wait == nil {
		return 0
	}
	return time.Duration(*q.Wait) * time.Second
}

// Change is one committed change of state.
type Change struct {
	Seq    int64  `json:"seq" doc:"Position in the feed, without gaps."`
	Kind   string `json:"kind" doc:"Kind of the object: trustedCA, trustedServer, principalTrust, aclTemplate, templatedDirectory, role, principal, key, session, certificate, revocation, approvalPolicy, dataKey, authority."`
	ID     HexID  `json:"id" doc:"Id of the object, always in hexadecimal; of a trusted server, its system id. Zero for kind key: too many keys to list, any ACL may have changed."`
	Action string `json:"action" enum:"ChangeAction"`
}

// ChangePage is the response of a read of the change feed.
type ChangePage struct {
	Cursor  int64    `json:"cursor" doc:"Value of after for the next request."`
	Changes []Change `json:"changes"`
	Reset   bool     `json:"reset" doc:"True if the cursor is too old. Then read the complete state again."`
}
