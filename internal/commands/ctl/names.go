package ctl

// This file has names for which the general rule is wrong, or that users would not find. A test checks that each name
// belongs to a route, a schema or a field.

// alias is a second name of a verb. If the name is also a noun, the noun alone runs the verb.
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
	cursor     string // parameter for the start position
	mark       string // member of a row with its position
	order      string // parameter for the order; newest is its value for the newest rows first
	newest     string
	limit      string // the parameter for the number of rows
	session    string // member of a row with its session
	operation  string // member of a row with its operation
}

var followers = []follower{
	{name: "audit tail", verb: "audit list", cursor: "cursor", mark: "seq", order: "order", newest: "desc", limit: "limit", session: "session", operation: "operation"},
}

// approvalVerb is the verb that submits a request for approval.
const approvalVerb = "approvals ask"

// columns has the columns of a table by the schema of a row, if the general rule does not choose useful columns.
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

// exact lists the schemas of rows whose times are shown exactly in tables. In other lists, times are ages.
var exact = []string{"AuditEntry"}

// activity lists the members that change with each use of an object. --watch does not print a row again if only these
// members have changed.
var activity = []string{"lastUsedAt", "idleExpiresAt", "uses"}

// principals are the members and parameters that are principal ids in hexadecimal digits, like {id} in principalPath.
var principals = []string{"principalId", "groupId", "heir", "asker", "pid", "gid"}

const principalPath = "/principals/{id}"

// verdict describes an error response that lists its reasons: the rows of list whose member good is false. All fields
// are names of members.
type verdict struct{ list, name, good, why, again, also string }

// verdicts has a verdict for each such response, by the name of its schema.
var verdicts = map[string]verdict{
	"Ready": {list: "parts", name: "part", good: "ready", why: "detail", again: "retryInSeconds", also: "warnings"},
}

// upper has the column headers of words for which the general rule is wrong.
var upper = map[string]string{"acl": "ACL", "ca": "CA", "crl": "CRL", "id": "ID", "url": "URL", "ttag": "KEY"}
