package ctl

// The data of this package: what a rule would get wrong, or nobody would find. A test
// looks whether each name is one of a route, a schema or a field.

// alias is another name of a verb. One that is also a noun is what the noun does when no
// verb is said.
type alias struct{ name, verb string }

var aliases = []alias{
	{"approve", "approvals approve"},
	{"config", "config get"},
	{"custody", "custody get"},
	{"explain", "explain get"},
	{"health", "health get"},
	{"ready", "ready get"},
	{"version", "server version get"},
	{"who-can", "who-can list"},
	{"whoami", "sessions current get"},
	{"why", "explain get"},
	{"witness", "witness get"},
}

// follower is a verb that goes on asking a listing for what is new.
type follower struct {
	name, verb string
	cursor     string // the parameter that says behind what
	mark       string // the member of a row that it takes
	order      string // the parameter for the newest first, and its value
	newest     string
	limit      string // the parameter for how many
	session    string // the member that says whose row it is
	operation  string // and the one that says of what
}

var followers = []follower{
	{name: "audit tail", verb: "audit list", cursor: "cursor", mark: "seq", order: "order", newest: "desc", limit: "limit", session: "session", operation: "operation"},
}

// asking is the verb that asks others to approve a request.
const asking = "approvals ask"

// columns are those of a table, by the schema of a row, where the rule's are not what
// one looks for.
var columns = map[string][]string{
	"ACLEntry":        {"principalId", "systemId", "rightNames", "maxUsage", "startTime", "endTime"},
	"AuditEntry":      {"seq", "time", "operation", "outcome", "reason", "object", "principalId", "address", "for"},
	"Certificate":     {"certificateId", "subject", "statusLabel", "expirationDate", "issuer"},
	"GateBy":          {"name", "id"},
	"KeyFacts":        {"ttag", "state", "algorithm", "generation", "createdAt", "lastUsedAt", "uses", "lineage"},
	"ListedSession":   {"id", "principal", "kind", "address", "lastUsedAt", "expiresAt"},
	"MACItemResponse": {"mac", "ttag", "generation", "code", "detail"},
	"Supposition":     {"change", "name", "rights", "maxUsage", "startTime", "endTime", "principalId", "hiddenLink", "roleId", "groupId", "systemId"},
	"TemplateMember":  {"principalId", "systemId", "rightNames", "maxUsage", "startTime", "endTime"},
}

// principals are the members and parameters that are a principal in hexadecimal digits; so is
// {id} in principalPath.
var principals = []string{"principalId", "groupId", "heir", "asker", "pid", "gid"}

const principalPath = "/principals/{id}"

// verdict is an answer that comes with a refusal, and lists why: the rows that are not good.
type verdict struct{ list, name, good, why, again, also string }

// verdicts are those, by the schema of the answer.
var verdicts = map[string]verdict{
	"Ready": {list: "parts", name: "part", good: "ready", why: "detail", again: "retryInSeconds", also: "warnings"},
}

// upper are words of a name that a header spells otherwise than the rule does.
var upper = map[string]string{"acl": "ACL", "ca": "CA", "crl": "CRL", "id": "ID", "url": "URL", "ttag": "KEY"}
