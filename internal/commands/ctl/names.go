package ctl

// The data of this package: names that the general rule would get wrong or that users would not
// find. A test checks that each name is one of a route, a schema or a field.

// alias is another name of a verb. If the name is also a noun, the noun without a verb runs it.
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

// follower is a command that polls a listing for new rows.
type follower struct {
	name, verb string
	cursor     string // the parameter for the position to start after
	mark       string // the member of a row with its position
	order      string // the parameter for the order, and its value for newest first
	newest     string
	limit      string // the parameter for the number of rows
	session    string // the member with the session of a row
	operation  string // the member with the operation of a row
}

var followers = []follower{
	{name: "audit tail", verb: "audit list", cursor: "cursor", mark: "seq", order: "order", newest: "desc", limit: "limit", session: "session", operation: "operation"},
}

// approvalVerb is the verb that requests approval of a request.
const approvalVerb = "approvals ask"

// columns lists the columns of a table by the schema of a row, if the general rule does not choose the useful ones.
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

// principals lists the members and parameters that are principals in hexadecimal digits. So is {id} in principalPath.
var principals = []string{"principalId", "groupId", "heir", "asker", "pid", "gid"}

const principalPath = "/principals/{id}"

// verdict describes a response to a refusal that lists the reasons: the rows that are not good.
type verdict struct{ list, name, good, why, again, also string }

// verdicts are these responses, by the name of their schema.
var verdicts = map[string]verdict{
	"Ready": {list: "parts", name: "part", good: "ready", why: "detail", again: "retryInSeconds", also: "warnings"},
}

// upper has the words whose spelling in a header differs from the general rule.
var upper = map[string]string{"acl": "ACL", "ca": "CA", "crl": "CRL", "id": "ID", "url": "URL", "ttag": "KEY"}
