package routes

import (
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// All returns all routes in the order of the reference.
func All() []Route {
	var all []Route
	for _, n := range Nouns() {
		for _, r := range n.Routes {
			r.Tag = n.Tag
			all = append(all, r)
		}
	}
	return all
}

// Noun is a group of routes with the same subject.
type Noun struct {
	Tag    string
	About  string
	Routes []Route
}

// Nouns returns all routes by subject.
func Nouns() []Noun {
	all := []Noun{
		{"Service", "The service itself: its health, version, configuration and backups, and this document.", append(serviceRoutes(), backupRoutes()...)},
		{"Sessions", "Login and logout. Almost all other routes need the session id of a login.", sessionRoutes()},
		{"Keys", "Symmetric keys and their use. A key does not leave the key server, except by an export.", append(keyRoutes(), cryptoRoutes()...)},
		{"Life of keys", "States of keys, rotation of key lineages, and the list of readable keys.", keyLifeRoutes()},
		{"Access control lists", "The rights of principals on one key.", aclRoutes()},
		{"Principals", "Users, groups and transport identities. They can have roles and rights.", slices.Concat(principalRoutes(), principalChangeRoutes())},
		{"Groups", "Principals whose members also have the group's roles and rights.", groupRoutes()},
		{"Roles", "Named sets of operations. A principal may perform the operations of its roles.", roleRoutes()},
		{"Trusted CAs", "The certificate authorities whose certificates the key server accepts.", trustedCARoutes()},
		{"ACL templates", "Lists of members that become ACL entries of each new key.", aclTemplateRoutes()},
		{"Templated directories", "The ACL template for keys that are created under a path.", templatedDirectoryRoutes()},
		{"Trusted servers", "Peer key servers, and the data to register this one with them.", trustedServerRoutes()},
		{"Authorities", "The internal CAs of this key server: prepared, active and retiring ones.", authorityRoutes()},
		{"Principal trusts", "What a peer learns of a principal.", principalTrustRoutes()},
		{"Certificates", "Issuing, renewing, enrolling and finding client certificates.", certificateRoutes()},
		{"Revocation", "Revocation lists (CRLs) of trusted CAs, and the policies for their use.", revocationRoutes()},
		{"Owners", "Marks that name the manager of an object, so that two managers do not change it alternately.", ownerRoutes()},
		{"Records", "Operations, the audit log and the change feed.", recordRoutes()},
		{"Why", "Decisions of the authorizer, with their reasons.", append(explainRoutes(), accessRoutes()...)},
	}
	return append(all, Noun{"Approvals", "Requests that need the consent of a second person, and the policy for them.", approvalRoutes(all)})
}

func serviceRoutes() []Route {
	return []Route{
		endpoint[Nothing, schema.Health](Route{
			Name: "getHealth", Method: http.MethodGet, Path: "/api/health", Extension: true, Uncounted: true, Unconditional: true,
			Summary: "Reports that the process serves requests.",
		}),
		endpoint[Nothing, schema.Ready](Route{
			Name: "getReadiness", Method: http.MethodGet, Path: "/api/ready", Extension: true, Uncounted: true, Unconditional: true,
			Summary: "Reports for each part whether the service can do its work, and when it retries a failed part.",
			Faults:  codes(fault.NotReady), VerdictCodes: codes(fault.NotReady),
		}),
		endpoint[Nothing, schema.Version](Route{
			Name: "getVersion", Method: http.MethodPost, Path: "/api/server/version", Session: true,
			Summary:    "Returns the version record of the key server.",
			Operations: grants(keyserver.OpReadVersion),
		}),
		endpoint[schema.ConfigRequest, schema.Configuration](Route{
			Name: "getConfiguration", Method: http.MethodPost, Path: "/api/config/get", Session: true,
			Summary:    "Returns the part of the key server's configuration that responses may contain. It never contains credentials.",
			Operations: grants(keyserver.OpReadConfiguration), Faults: codes(fault.NotFound),
		}),
		endpoint[Nothing, schema.Custody](Route{
			Name: "getCustody", Method: http.MethodGet, Path: "/api/custody", Extension: true, Session: true,
			Summary:    "Returns the public data of the key-encryption key, the data keys, and the progress of rewrapping.",
			Operations: grants(keyserver.OpReadCustody),
		}),
		endpoint[Nothing, schema.DataKeyRotated](Route{
			Name: "rotateDataKey", Method: http.MethodPost, Path: "/api/custody/rotate", Extension: true, Session: true,
			Summary:    "Creates a data key and verifies that it is active. The key server rewraps all keys under it in the background.",
			Operations: grants(keyserver.OpReadCustody, keyserver.OpRotateDataKey),
			Faults:     codes(fault.RewrapRunning, fault.NotSaved, fault.ReadbackFailed, fault.NotReady),
		}),
		Route{
			Name: "getOpenApiDocument", Method: http.MethodGet, Path: "/api/openapi.json", Extension: true, Uncounted: true,
			Summary: "Returns this document.",
			Request: reflect.TypeFor[Nothing](),
		}.withDefaults(),
	}
}

func sessionRoutes() []Route {
	return []Route{
		endpoint[schema.LoginRequest, schema.LoginResponse](Route{
			Name: "login", Method: http.MethodPost, Path: "/api/sessions", Extension: true,
			Summary: "Logs in and returns a session id. No other response contains it.",
			Faults: append(codes(fault.InvalidCredentials, fault.LoginThrottled, fault.ProviderUnavailable, fault.SessionLimit,
				fault.AuditUnavailable, fault.StoreUnavailable, fault.StoreTampered, fault.NotCurrent), append(slices.Clone(fromSessionFaults), ProofFaults...)...),
		}),
		endpoint[Nothing, schema.Session](Route{
			Name: "getCurrentSession", Method: http.MethodGet, Path: "/api/sessions/current", Extension: true, Session: true,
			Summary: "Returns the calling session.",
		}),
		endpoint[Nothing, schema.SessionEnded](Route{
			Name: "endCurrentSession", Method: http.MethodDelete, Path: "/api/sessions/current", Extension: true, Session: true,
			Summary: "Ends the calling session.",
		}),
		endpoint[schema.SessionQuery, schema.SessionListing](Route{
			Name: "listSessions", Method: http.MethodGet, Path: "/api/sessions", Extension: true, Session: true,
			Summary:    "Lists valid sessions in pages, sorted by id. Sessions of the caller's own principal need no role.",
			Operations: grants(keyserver.OpListSessions),
		}),
		endpoint[schema.ByID, schema.SessionsEnded](Route{
			Name: "endSession", Method: http.MethodDelete, Path: "/api/sessions/{id}", Names: Unnamed, Extension: true, Session: true,
			Summary:    "Ends a session and the sessions made from it. Sessions of the caller's own principal need no role.",
			Operations: grants(keyserver.OpEndSessions), Faults: codes(fault.NotFound),
		}),
		endpoint[schema.ByID, schema.SessionsEnded](Route{
			Name: "endSessionsOfPrincipal", Method: http.MethodDelete, Path: "/api/principals/{id}/sessions", Names: keyserver.PrincipalSubject, Extension: true, Session: true,
			Summary:    "Ends all sessions of a principal and those made from them. The caller's own principal needs no role.",
			Operations: grants(keyserver.OpEndSessions), Faults: codes(fault.NotFound),
		}),
	}
}

// approvalRoutes needs the other routes, because executing an approval returns the response of one of them.
func approvalRoutes(others []Noun) []Route {
	decision := codes(fault.NotFound, fault.ApprovalState, fault.DigestMismatch, fault.SessionNotBound, fault.OwnAccount, fault.AccessDenied, fault.NotInScope, fault.PrincipalOff)
	policy := []Route{
		endpoint[Nothing, schema.ApprovalPolicy](Route{
			Name: "getApprovalPolicy", Method: http.MethodGet, Path: "/api/approvals/policy", Extension: true, Session: true,
			Summary:    "Returns the operations that need an approval.",
			Operations: grants(keyserver.OpReadApprovals),
		}),
		endpoint[schema.ApprovalPolicyRequest, schema.ApprovalPolicySaved](Route{
			Name: "setApprovalPolicy", Method: http.MethodPut, Path: "/api/approvals/policy", Extension: true, Session: true,
			Summary:    "Sets the operations that need an approval, and verifies them with a second read.",
			Operations: grants(keyserver.OpSetApprovalPolicy), Faults: codes(fault.InvalidArgument, fault.NotSaved),
		}),
		endpoint[schema.ApprovalQuery, schema.ApprovalListing](Route{
			Name: "listApprovals", Method: http.MethodGet, Path: "/api/approvals", Extension: true, Session: true,
			Summary:    "Lists approvals in pages, sorted by id. Approvals that the caller requested need no role.",
			Operations: grants(keyserver.OpReadApprovals),
		}),
		endpoint[schema.ByID, schema.Approval](Route{
			Name: "getApproval", Method: http.MethodGet, Path: "/api/approvals/{id}", Names: Unnamed, Extension: true, Session: true,
			Summary:    "Returns an approval. An approval that the caller requested needs no role.",
			Operations: grants(keyserver.OpReadApprovals), Faults: codes(fault.NotFound),
		}),
	}
	executed := codes(fault.NotFound, fault.ApprovalState, fault.AccessDenied)
	for _, n := range append(others, Noun{Routes: policy}) {
		for _, r := range n.Routes {
			if r.Approvable() {
				executed = append(executed, r.Codes()...)
			}
		}
	}
	slices.Sort(executed)
	return append(policy,
		Route{
			Name: "askApproval", Method: http.MethodPost, Path: "/api/approvals", Extension: true, Session: true,
			Summary: "Requests approval of a request that a rule guards and the caller may otherwise make.",
			Faults:  codes(fault.InvalidArgument, fault.ApprovalLimit, fault.AccessDenied, fault.PrincipalOff, fault.NotInScope),
			Request: reflect.TypeFor[schema.ApprovalRequest](), Response: reflect.TypeFor[schema.Approval](), BodyLimit: 2 * SmallBody,
		}.withDefaults(),
		endpoint[schema.ApprovalDecision, schema.Approval](Route{
			Name: "approve", Method: http.MethodPost, Path: "/api/approvals/{id}/approve", Extension: true, Session: true,
			Summary: "Approves exactly the request with this digest. The caller needs a duty that a rule requires and a session bound to a key, and must not be the requester.",
			Faults:  decision,
		}),
		endpoint[schema.ApprovalDecision, schema.Approval](Route{
			Name: "reject", Method: http.MethodPost, Path: "/api/approvals/{id}/reject", Extension: true, Session: true,
			Summary: "Rejects a request permanently. The caller must meet the same conditions as an approver.",
			Faults:  decision,
		}),
		endpoint[schema.ByID, schema.Approval](Route{
			Name: "withdrawApproval", Method: http.MethodPost, Path: "/api/approvals/{id}/withdraw", Extension: true, Session: true,
			Summary: "Withdraws a request of the caller, or the caller's approval of another request.",
			Faults:  codes(fault.NotFound, fault.ApprovalState, fault.AccessDenied, fault.NotInScope, fault.SessionNotBound, fault.PrincipalOff),
		}),
		Route{
			Name: "executeApproval", Method: http.MethodPost, Path: "/api/approvals/{id}/execute", Extension: true, Session: true,
			Summary: "Executes an approved request once, with the present rights of its requester, and returns the response of its route.",
			Faults:  slices.Compact(executed), Request: reflect.TypeFor[schema.ByID](), Executes: true, Timeout: time.Minute, VerdictCodes: Verdicts,
		}.withDefaults(),
	)
}

func keyRoutes() []Route {
	return []Route{
		endpoint[schema.MintKeyRequest, schema.KeyMetadata](Route{
			Name: "mintKey", Method: http.MethodPost, Path: "/api/keys", Makes: keyserver.ChangeKey, Extension: true, Session: true,
			Summary:    "Creates or imports a key. The caller becomes its owner.",
			Operations: grants(keyserver.OpCreateKey), Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.KeyRequest, schema.KeyMetadata](Route{
			Name: "getKey", Method: http.MethodPost, Path: "/api/keys/get", Session: true,
			Summary:    "Returns the metadata of a key, found by hidden link. It never returns key material.",
			Operations: grants(keyserver.OpReadKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable),
		}),
		endpoint[schema.AuthorizeKeyRequest, schema.KeyGrant](Route{
			Name: "authorizeKey", Method: http.MethodPost, Path: "/api/keys/authorize", Session: true, Counts: true,
			Summary:    "Checks whether the caller may use a key. Returns 200 if allowed and 403 if denied.",
			Operations: grants(keyserver.OpAuthorizeKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.KeyDisabled, fault.NotInScope, fault.PeerUnavailable),
		}),
		endpoint[schema.ExportKeyRequest, schema.ExportedKey](Route{
			Name: "exportKey", Method: http.MethodPost, Path: "/api/keys/export", Extension: true, Session: true,
			Summary:    "Returns a key that the caller owns, encrypted for the certificate of a transport principal.",
			Operations: grants(keyserver.OpExportKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.KeyDisabled, fault.KeyNotExportable, fault.NotInScope, fault.NotFound, fault.InvalidArgument),
		}),
		streamed[schema.HMACRequest, schema.HMACResponse](Route{
			Name: "computeHmac", Method: http.MethodPost, Path: "/api/crypto/hmac", Session: true, Counts: true,
			Summary:    "Computes the HMAC-SHA384 of a message with a key that never leaves the key server.",
			Operations: grants(keyserver.OpHMAC), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.KeyDisabled, fault.NotInScope, fault.PeerUnavailable),
			BodyLimit: HMACBodyLimit, Timeout: time.Minute, Form: hmacbody.HMAC,
		}),
	}
}

func keyLifeRoutes() []Route {
	change := codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.InvalidArgument, fault.KeyState, fault.NotSaved, fault.ReadbackFailed)
	return []Route{
		endpoint[schema.KeyQuery, schema.KeyListing](Route{
			Name: "listKeys", Method: http.MethodGet, Path: "/api/keys", Extension: true, Session: true,
			Summary:    "Lists the metadata of keys that the caller or one of its groups may read.",
			Operations: grants(keyserver.OpListKeys), Faults: codes(fault.NotInScope, fault.InvalidArgument),
		}),
		endpoint[schema.KeyRequest, schema.KeyStateSaved](Route{
			Name: "disableKey", Method: http.MethodPost, Path: "/api/keys/disable", Extension: true, Session: true,
			Summary:    "Disables a key until it is enabled again, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change,
		}),
		endpoint[schema.KeyRequest, schema.KeyStateSaved](Route{
			Name: "enableKey", Method: http.MethodPost, Path: "/api/keys/enable", Extension: true, Session: true,
			Summary:    "Enables a key again, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change,
		}),
		endpoint[schema.DestroyKeyRequest, schema.KeyStateSaved](Route{
			Name: "destroyKey", Method: http.MethodPost, Path: "/api/keys/destroy", Extension: true, Session: true,
			Summary:    "Prevents every use of a key, schedules the deletion of its bytes, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change, Effect: keyserver.EffectDestroyKey,
		}),
		endpoint[schema.KeyRequest, schema.KeyStateSaved](Route{
			Name: "restoreKey", Method: http.MethodPost, Path: "/api/keys/restore", Extension: true, Session: true,
			Summary:    "Cancels the destruction of a key, which is disabled afterwards, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change,
		}),
		endpoint[schema.KeyRequest, schema.KeyRotated](Route{
			Name: "rotateKey", Method: http.MethodPost, Path: "/api/keys/rotate", Extension: true, Session: true,
			Summary:    "Creates the successor of the newest key of a lineage, with the same ACL, and verifies it.",
			Operations: grants(keyserver.OpRotateKey), Faults: change,
		}),
		endpoint[schema.KeyRotationRequest, schema.KeyRotationSaved](Route{
			Name: "setKeyRotation", Method: http.MethodPut, Path: "/api/keys/rotation", Extension: true, Session: true,
			Summary:    "Sets the rotation schedule of a lineage and verifies it.",
			Operations: grants(keyserver.OpRotateKey), Faults: change,
		}),
	}
}

func aclRoutes() []Route {
	amend := grants(keyserver.OpReadACL, keyserver.OpAmendACL)
	denied := codes(fault.ACLNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable)
	written := append(codes(fault.NotVerified, fault.ReadbackFailed, fault.InvalidArgument, fault.PeerNoAnswer), denied...)
	return []Route{
		endpoint[schema.ACLChangeRequest, schema.ACLResponse](Route{
			Name: "grantAcl", Method: http.MethodPost, Path: "/api/keys/acl/grant", Extension: true, Session: true,
			Summary:    "Adds rights to the ACL entry of a principal, creates the entry if necessary, and verifies the rights.",
			Operations: amend, Faults: append(codes(fault.NotFound), written...),
		}),
		endpoint[schema.ACLChangeRequest, schema.ACLResponse](Route{
			Name: "updateAcl", Method: http.MethodPost, Path: "/api/keys/acl/update", Session: true,
			Summary:    "Sets the rights of an existing ACL entry and verifies them.",
			Operations: amend, Faults: written,
		}),
		endpoint[schema.ACLRevokeRequest, schema.ACLResponse](Route{
			Name: "revokeAcl", Method: http.MethodPost, Path: "/api/keys/acl/revoke", Extension: true, Session: true,
			Summary:    "Removes the ACL entry of a principal and verifies its absence.",
			Operations: amend, Faults: written,
		}),
		endpoint[schema.KeyRequest, schema.ACLResponse](Route{
			Name: "getAcl", Method: http.MethodPost, Path: "/api/keys/acl/get", Extension: true, Session: true,
			Summary:    "Returns the ACL of a key.",
			Operations: grants(keyserver.OpReadACL), Faults: denied,
		}),
	}
}

func recordRoutes() []Route {
	return []Route{
		endpoint[Nothing, schema.OperationList](Route{
			Name: "listOperations", Method: http.MethodGet, Path: "/api/operations", Extension: true, Session: true,
			Summary:    "Lists the operations.",
			Operations: grants(keyserver.OpListOperations),
		}),
		endpoint[schema.AuditQuery, schema.AuditPage](Route{
			Name: "listAuditEntries", Method: http.MethodGet, Path: "/api/audit", Extension: true, Session: true,
			Summary:    "Lists the rows of the audit log in pages, oldest or newest row first.",
			Operations: grants(keyserver.OpReadAudit), Faults: codes(fault.Archived),
		}),
		endpoint[Nothing, schema.Text](Route{
			Name: "getAuditCheckpoint", Method: http.MethodGet, Path: "/api/audit/checkpoint", Extension: true, Session: true,
			Summary: "Returns the signed size and root hash of the audit tree (C2SP tlog-checkpoint).",
			Faults:  codes(fault.NotReady),
		}),
		endpoint[Nothing, schema.AuditKey](Route{
			Name: "getAuditKey", Method: http.MethodGet, Path: "/api/audit/key", Extension: true, Session: true,
			Summary: "Returns the name of the audit tree and the key that verifies its checkpoints.",
		}),
		endpoint[schema.ByRow, schema.Text](Route{
			Name: "getAuditReceipt", Method: http.MethodGet, Path: "/api/audit/{seq}/receipt", Extension: true, Session: true,
			Summary:    "Returns the proof that a row is in the audit tree (C2SP tlog-proof). For a new row, it waits until the tree contains it.",
			Operations: grants(keyserver.OpReadAudit), Faults: codes(fault.NotFound, fault.NotReady),
		}),
		endpoint[schema.AuditHashesRequest, schema.Octets](Route{
			Name: "getAuditHashes", Method: http.MethodGet, Path: "/api/audit/tile/{level}/{tile}", Extension: true, Session: true,
			Summary: "Returns hashes of the audit tree (C2SP tlog-tiles).",
			Faults:  codes(fault.NotFound),
		}),
		endpoint[schema.AuditEntriesRequest, schema.Octets](Route{
			Name: "getAuditEntries", Many: true, Method: http.MethodGet, Path: "/api/audit/tile/entries/{tile}", Extension: true, Session: true,
			Summary:    "Returns audit rows in the form that the audit tree hashes (C2SP tlog-tiles).",
			Operations: grants(keyserver.OpReadAudit), Faults: codes(fault.Archived, fault.NotFound),
		}),
		endpoint[Nothing, schema.Witness](Route{
			Name: "getWitness", Method: http.MethodGet, Path: "/api/witness", Extension: true, Session: true,
			Summary:    "Returns the logs that this key server witnesses, and the key of its cosignatures.",
			Operations: grants(keyserver.OpReadAudit),
		}),
		endpoint[schema.ChangesQuery, schema.ChangePage](Route{
			Name: "listChanges", Method: http.MethodGet, Path: "/api/changes", Extension: true, Session: true, Waits: true,
			Summary:    "Lists the changes after a cursor, and waits for a change if there is none yet.",
			Operations: grants(keyserver.OpWatchChanges), Timeout: maxWait + ShortTimeout,
		}),
	}
}

func codes(c ...fault.Code) []fault.Code { return c }

func grants(ops ...keyserver.Operation) []keyserver.Operation { return ops }

// backupTime is the time limit of one backup. The database keeps all old row versions until the backup ends.
const backupTime = 6 * time.Hour

// accessRoutes returns the routes of the OpenID AuthZEN Authorization API 1.0, which ask the authorizer for decisions.
func accessRoutes() []Route {
	return []Route{
		endpoint[schema.AccessRequest, schema.AccessDecision](Route{
			Name: "getDecision", Method: http.MethodPost, Path: "/access/v1/evaluation", Extension: true, Session: true,
			Summary: "Returns whether the authorizer would allow an operation (AuthZEN). Questions about other principals need Explain Access.",
			Faults:  codes(fault.AccessDenied, fault.NotInScope, fault.InvalidArgument),
		}),
		endpoint[schema.AccessBatchRequest, schema.AccessDecisions](Route{
			Name: "getDecisions", Method: http.MethodPost, Path: "/access/v1/evaluations", Extension: true, Session: true,
			Summary: "Returns the decisions on several questions. A question that is refused itself gets a decision of false.",
			Faults:  codes(fault.AccessDenied, fault.NotInScope, fault.InvalidArgument),
		}),
	}
}

// explainRoutes returns the routes that explain decisions of the authorizer. They have no other effect.
func explainRoutes() []Route {
	return []Route{
		endpoint[schema.ExplainRequest, schema.Explanation](Route{
			Name: "getExplanation", Method: http.MethodPost, Path: "/api/explain", Extension: true, Session: true,
			Summary: "Explains the decision of the authorizer on an operation step by step, with the smallest change that would reverse it. Questions about other principals, and the fields with and at, need Explain Access.",
			Faults:  codes(fault.AccessDenied, fault.NotInScope, fault.NotFound, fault.InvalidArgument),
		}),
		endpoint[schema.WhoCanRequest, schema.WhoCanPage](Route{
			Name: "listCapable", Method: http.MethodPost, Path: "/api/who-can", Extension: true, Session: true,
			Summary:    "Lists the principals that may perform an operation, with the role and ACL entry that allow it, in pages sorted by id.",
			Operations: grants(keyserver.OpExplainAccess), Faults: codes(fault.KeyNotFound, fault.InvalidArgument),
		}),
	}
}

func backupRoutes() []Route {
	return []Route{
		download[schema.BackupRequest](Route{
			Name: "createBackup", Method: http.MethodPost, Path: "/api/backups", Extension: true, Session: true,
			Summary:    "Creates a backup of the database while the service runs, and sends it encrypted for an age recipient. An incomplete backup cannot be opened.",
			Operations: grants(keyserver.OpMakeBackup), Timeout: backupTime,
		}),
	}
}

// maxWait is the maximum time that a read of the change feed waits. The limit of its query parameter is the same.
const maxWait = 60 * time.Second

// AddCheckpoint is not in the table, because its request and response have the text format of C2SP tlog-witness. Only
// its errors are JSON.
var AddCheckpoint = Route{
	Name: "addCheckpoint", Method: http.MethodPost, Path: "/api/witness/add-checkpoint", Extension: true,
	BodyLimit: 16 << 10, Timeout: ShortTimeout,
}
