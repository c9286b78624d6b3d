package wire

import "github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"

// enums has the allowed values of each enumeration. A field names its enumeration in the tag "enum". The OpenAPI
// document has a component for each, because generators of clients need a name for its type.
var enums = map[string][]string{
	"ApprovalDuty":        {"administration", "trust", "audit", "any"},
	"ApprovalStatus":      {"pending", "approved", "expired", "rejected", "executed", "withdrawn"},
	"ApprovalSubjectKind": {"asker", "principal", "group", "role", "holders", "key", "peer", "trustedCa", "certificate", "transport", "template", "directory", "principalTrust", "owner"},
	"AuditOutcome":        {"allowed", "refused", "failed"},
	"AuthorityState":      {"prepared", "active", "retiring"},
	"CRLState":            {"none", "current", "stale"},
	"CertificateLookup":   {"by-id", "by-subject", "by-transport-principal", "from-certificate"},
	"CertificateStatus":   {"CA", "Regular", "Saved request", "Trusted server", "Expired"},
	"ChangeAction":        {"created", "updated", "deleted"},
	"DataKeyState":        {"active", "retiring", "retired"},
	"EvaluationsSemantic": {"execute_all", "deny_on_first_deny", "permit_on_first_permit"},
	"FailureScope":        {"session", "process"},
	"GateByKind":          {"role", "principal"},
	"GateCheck":           {"current", "delegation", "principal", "certificate", "lent", "role", "scope", "approval", "transport", "key", "exposure", "list", "state", "uses", "owner"},
	"GateOutcome":         {"passed", "refused", "notAsked"},
	"KeyAlgorithm":        {"HMAC-SHA384", "AES-256"},
	"KeyState":            {"enabled", "verifyOnly", "disabled", "destroying", "destroyed"},
	"KeyWrapAlgorithm":    {"RSA-OAEP-256", "ECDH-ES+A256KW"},
	"LoginMethod":         {"password", "kubernetes", "ldap", "certificate", "delegated", "scoped"},
	"OwnedKind":           {"role", "principal", "key", "trustedCA", "trustedServer", "principalTrust", "aclTemplate", "templatedDirectory"},
	"PrincipalFlagName":   {"delegation", "disabled"},
	"PrincipalTrustFlag":  {"restrict", "expose"},
	"PrincipalType":       {"password", "certificate", "ldap", "xauth", "group"},
	"RequestMethod":       {"GET", "POST", "PUT", "DELETE"},
	"ResourceType":        {"key", "keyserver"},
	"RevocationMode":      {"off", "when-available", "required"},
	"RightName":           values.RightNames(),
	"SortOrder":           {"asc", "desc"},
	"SupposedChange":      {"giveRole", "takeRole", "addMember", "removeMember", "enable", "disable", "setEntry", "removeEntry", "expose", "restrict", "enableKey", "approve"},
	"TrustedCAMatch":      {"certificate-body", "echoed-id", "sole-new-entry"},
	"WitnessConflict":     {"logForked", "logRolledBack", "logForged", "logKeyChanged"},
}
