package rowmac

// Table describes how MACs cover a table.
type Table struct {
	// Key contains the columns that select a row, if the rows of this table have a MAC.
	Key []string
	// In is the name of the table whose MACs cover this table, if the rows of this table have no MACs of their own.
	In string
	// Uncovered contains the columns that no MAC covers, each with the reason.
	Uncovered map[string]string
}

// Tables contains the tables that MACs cover. A test checks the schema: each table is here or in UncoveredTables, and
// each column that is not in Uncovered changes a MAC.
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
	"acl_entries":           {In: "stored_keys", Uncovered: map[string]string{"used": "changes with each use"}},
	"purged_acl_entries":    {In: "stored_keys", Uncovered: map[string]string{"used": "changes with each use"}},
	"trusted_cas":           {Key: []string{"id"}, Uncovered: map[string]string{"fingerprint": "identifies duplicates, and is computed from der"}},
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
	"authorities":           {Key: []string{"id"}, Uncovered: map[string]string{"wrapped_key": "decrypts only for this id, and must be the key of the certificate"}},
	"witnessed_logs":        {Key: []string{"origin"}},
	"peer_authorities":      {Key: []string{"system_id", "fingerprint"}},
	"owners":                {Key: []string{"kind", "id"}},
	"sessions": {Key: []string{"id"}, Uncovered: map[string]string{
		"last_used_at": "changes with each use; a session also ends at expires_at",
		"ended":        "an ended session loses its MAC, so it cannot be opened again",
	}},
}

// UncoveredTables contains the tables that no MAC covers, each with the reason.
var UncoveredTables = map[string]string{
	"audit":            "its rows form a chain",
	"audit_chains":     "the heads of that chain",
	"audit_blocks":     "point to audit rows; a wrong row hides audit rows from a filter, and audit verify detects that",
	"audit_block_keys": "like audit_blocks",
	"audit_tree":       "signed",
	"audit_tiles":      "lead to the signed root",
	"audit_sinks":      "the receiver detects missing rows by the signature, and repeated rows because it has them",
	"audit_journal":    "a wrong row is refused at the start, because no row of the journal continues it",
	"audit_extent":     "a wrong row hides audit rows that the tree and the archive still show",
	"audit_cuts":       "where the chain continues, which the archive proves",
	"changes":          "record that an object was changed, not its content",
	"sequences":        "counters",
	"used_proofs":      "a missing row allows a proof twice within its minutes, and nothing else",
	"peer_calls":       "a missing row counts a use twice",
	"key_encryptions":  "a lower number allows a key to encrypt more often than it should, and gives no right",
	"login_buckets":    "allowed password attempts",
	"key_uses":         "change with each use, and no decision depends on them",
	"leases":           "a wrong row delays work that any process can do",
	"known_origins":    "the origins of earlier logins",
	"keyserver_schema": "the version of the schema",
	"schema_floor":     "a wrong row prevents programs from starting, or allows a program to start that does not know the schema",
}
