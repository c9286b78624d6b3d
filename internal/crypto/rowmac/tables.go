package rowmac

// Table describes how MACs cover a table.
type Table struct {
	// Key are the columns that select a row, if the table has the MACs itself.
	Key []string
	// In names the table whose rows have the MAC, if it is another one.
	In string
	// LeftOut are the columns that no MAC covers, each with the reason.
	LeftOut map[string]string
}

// Tables are the tables that MACs cover. A test checks the schema: each table is here or
// in Without, and each column that is not left out changes a MAC.
var Tables = map[string]Table{
	"principals":            {Key: []string{"id"}},
	"principal_roles":       {In: "principals"},
	"group_members":         {In: "principals"},
	"xauth_identities":      {In: "principals"},
	"xauth_audiences":       {In: "principals"},
	"delegates":             {In: "principals"},
	"roles":                 {Key: []string{"id"}},
	"role_operations":       {In: "roles"},
	"stored_keys":           {Key: []string{"id"}},
	"key_rotations":         {Key: []string{"lineage"}},
	"acl_entries":           {In: "stored_keys", LeftOut: map[string]string{"used": "changes with each use"}},
	"purged_acl_entries":    {In: "stored_keys", LeftOut: map[string]string{"used": "changes with each use"}},
	"trusted_cas":           {Key: []string{"id"}, LeftOut: map[string]string{"fingerprint": "finds a duplicate, and follows from der"}},
	"trusted_servers":       {Key: []string{"system_id"}},
	"principal_trusts":      {Key: []string{"id"}},
	"certificates":          {Key: []string{"id"}},
	"revocation_policies":   {Key: []string{"issuer_digest"}},
	"revocation_lists":      {Key: []string{"issuer_digest"}},
	"acl_templates":         {Key: []string{"id"}},
	"acl_template_members":  {Key: []string{"template_id", "system_id", "principal_id"}},
	"templated_directories": {Key: []string{"id"}},
	"settings":              {Key: []string{"name"}},
	"approvals":             {Key: []string{"id"}},
	"approval_votes":        {In: "approvals"},
	"authorities":           {Key: []string{"id"}, LeftOut: map[string]string{"wrapped_key": "opens under the data key for this id alone, and has to be the key of the certificate"}},
	"witnessed_logs":        {Key: []string{"origin"}},
	"peer_authorities":      {Key: []string{"system_id", "fingerprint"}},
	"owners":                {Key: []string{"kind", "id"}},
	"sessions": {Key: []string{"id"}, LeftOut: map[string]string{
		"last_used_at": "changes with each use; expires_at ends a session all the same",
		"ended":        "a session that ended loses its MAC, so that it cannot be opened again",
	}},
}

// Without are the tables that no MAC covers, each with the reason.
var Without = map[string]string{
	"audit":            "its rows form a chain",
	"audit_chains":     "the heads of that chain",
	"audit_blocks":     "lead to rows of the trail: one that is wrong hides rows from a filter, which audit verify finds",
	"audit_block_keys": "like audit_blocks",
	"audit_tree":       "signed",
	"audit_tiles":      "lead to the root that is signed",
	"audit_sinks":      "who receives sees by what is signed whether rows lack, and a row too often is one that it has",
	"audit_journal":    "a wrong one is refused at the start, because no row of a journal follows from it",
	"audit_extent":     "whoever moves it hides rows that the tree and the archive still show",
	"audit_cuts":       "where the chain goes on, which the archive leads to",
	"changes":          "says that something was changed, not what it is",
	"sequences":        "counters",
	"used_proofs":      "a row fewer lets a proof pass twice within its minutes, and gives nothing else",
	"peer_calls":       "a row fewer counts a use twice",
	"key_encryptions":  "a lower number lets a key encrypt more often than it should, and gives no right",
	"login_buckets":    "guesses that may be made",
	"key_uses":         "change with each use, and nothing is decided by them",
	"leases":           "a wrong one delays work that each process would do",
	"known_origins":    "from where somebody has logged in",
	"keyserver_schema": "the version of the schema",
	"schema_floor":     "a wrong one keeps programs from starting, or lets one start that does not know the schema",
}
