package routes

import (
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
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

// Noun is the subject of a group of routes.
type Noun struct {
	Tag    string
	About  string
	Routes []Route
}

// Nouns returns all routes by subject.
func Nouns() []Noun {
	all := []Noun{
		{"Service", "The service itself: whether it works, what it is, its backups, and this document.", append(serviceRoutes(), backupRoutes()...)},
		{"Sessions", "Logging in and out. The session id of a login is what every other route asks for.", sessionRoutes()},
		{"Keys", "Symmetric keys, and what can be done with one that never leaves the key server.", append(keyRoutes(), cryptoRoutes()...)},
		{"Life of keys", "States of keys, lines of keys that succeed each other, and which keys one may read.", keyLifeRoutes()},
		{"Access control lists", "Who holds which rights over one key.", aclRoutes()},
		{"Principals", "Users, groups and transport identities. They can hold roles and rights.", slices.Concat(principalRoutes(), principalChangeRoutes())},
		{"Groups", "Principals whose members hold the group's roles and rights, too.", groupRoutes()},
		{"Roles", "Named sets of operations. A principal may do what one of its roles grants.", roleRoutes()},
		{"Trusted CAs", "The certificate authorities whose certificates the key server accepts.", trustedCARoutes()},
		{"ACL templates", "Lists of members that become entries on the access control list of each new key.", aclTemplateRoutes()},
		{"Templated directories", "Which ACL template applies to keys that are minted under a path.", templatedDirectoryRoutes()},
		{"Trusted servers", "Peer key servers, and how this one is registered with them.", trustedServerRoutes()},
		{"Authorities", "The CAs of this key server's own: which one issues, which is next, and which is trusted still.", authorityRoutes()},
		{"Principal trusts", "What a peer is told about a principal.", principalTrustRoutes()},
		{"Certificates", "Client certificates: issuing, renewing, enrolling and finding them.", certificateRoutes()},
		{"Revocation", "Revocation lists of trusted CAs, and how much they count.", revocationRoutes()},
		{"Owners", "Marks that say who manages an object, so that no two managers change it by turns.", ownerRoutes()},
		{"Records", "What was done and what has changed: operations, the audit trail and the change feed.", recordRoutes()},
		{"Why", "What the gate would say to whom, and why.", append(explainRoutes(), accessRoutes()...)},
	}
	return append(all, Noun{"Approvals", "What takes two people: the policy that says so, and the requests that others are asked to approve.", approvalRoutes(all)})
}

func serviceRoutes() []Route {
	return []Route{
		endpoint[Nothing, schema.Health](Route{
			Name: "getHealth", Method: http.MethodGet, Path: "/api/health", Extension: true, Uncounted: true, Unconditional: true,
			Summary: "Says that the process serves.",
		}),
		endpoint[Nothing, schema.Ready](Route{
			Name: "getReadiness", Method: http.MethodGet, Path: "/api/ready", Extension: true, Uncounted: true, Unconditional: true,
			Summary: "Says part by part whether the service can do its work, and when a failing part is tried again.",
			Faults:  codes(fault.NotReady), Judged: codes(fault.NotReady),
		}),
		endpoint[Nothing, schema.Version](Route{
			Name: "getVersion", Method: http.MethodPost, Path: "/api/server/version", Session: true,
			Summary:    "Reads the key server's version record.",
			Operations: grants(keyserver.OpReadVersion),
		}),
		endpoint[schema.ConfigRequest, schema.Configuration](Route{
			Name: "getConfiguration", Method: http.MethodPost, Path: "/api/config/get", Session: true,
			Summary:    "Reads what may leave of the key server's configuration. Credentials never do.",
			Operations: grants(keyserver.OpReadConfiguration), Faults: codes(fault.NotFound),
		}),
		endpoint[Nothing, schema.Custody](Route{
			Name: "getCustody", Method: http.MethodGet, Path: "/api/custody", Extension: true, Session: true,
			Summary:    "Reads how keys are kept: the key-encryption key without anything secret, the data keys, and how far wrapping under a new one has come.",
			Operations: grants(keyserver.OpReadCustody),
		}),
		endpoint[Nothing, schema.DataKeyRotated](Route{
			Name: "rotateDataKey", Method: http.MethodPost, Path: "/api/custody/rotate", Extension: true, Session: true,
			Summary:    "Makes a new data key and verifies that it is the active one. Everything is wrapped under it in the background.",
			Operations: grants(keyserver.OpReadCustody, keyserver.OpRotateDataKey),
			Faults:     codes(fault.RewrapRunning, fault.NotSaved, fault.ReadbackFailed, fault.NotReady),
		}),
		Route{
			Name: "getOpenApiDocument", Method: http.MethodGet, Path: "/api/openapi.json", Extension: true, Uncounted: true,
			Summary: "This document.",
			Request: reflect.TypeFor[Nothing](),
		}.withDefaults(),
	}
}

func sessionRoutes() []Route {
	return []Route{
		endpoint[schema.LoginRequest, schema.LoginResponse](Route{
			Name: "login", Method: http.MethodPost, Path: "/api/sessions", Extension: true,
			Summary: "Logs in. The session id is shown this once.",
			Faults: append(codes(fault.InvalidCredentials, fault.LoginThrottled, fault.ProviderUnavailable, fault.SessionLimit,
				fault.AuditUnavailable, fault.StoreUnavailable, fault.StoreTampered, fault.NotCurrent), append(slices.Clone(fromSessionFaults), ProofFaults...)...),
		}),
		endpoint[Nothing, schema.Session](Route{
			Name: "getCurrentSession", Method: http.MethodGet, Path: "/api/sessions/current", Extension: true, Session: true,
			Summary: "Describes the calling session.",
		}),
		endpoint[Nothing, schema.SessionEnded](Route{
			Name: "endCurrentSession", Method: http.MethodDelete, Path: "/api/sessions/current", Extension: true, Session: true,
			Summary: "Ends the calling session.",
		}),
		endpoint[schema.SessionQuery, schema.SessionListing](Route{
			Name: "listSessions", Method: http.MethodGet, Path: "/api/sessions", Extension: true, Session: true,
			Summary:    "Lists live sessions by id, in pages; those of the caller's own principal without any role.",
			Operations: grants(keyserver.OpListSessions),
		}),
		endpoint[schema.ByID, schema.SessionsEnded](Route{
			Name: "endSession", Method: http.MethodDelete, Path: "/api/sessions/{id}", Names: Unnamed, Extension: true, Session: true,
			Summary:    "Ends a session and those made from it; one of the caller's own principal without any role.",
			Operations: grants(keyserver.OpEndSessions), Faults: codes(fault.NotFound),
		}),
		endpoint[schema.ByID, schema.SessionsEnded](Route{
			Name: "endSessionsOfPrincipal", Method: http.MethodDelete, Path: "/api/principals/{id}/sessions", Names: keyserver.PrincipalSubject, Extension: true, Session: true,
			Summary:    "Ends every session of a principal and those made from them; the caller's own without any role.",
			Operations: grants(keyserver.OpEndSessions), Faults: codes(fault.NotFound),
		}),
	}
}

// approvalRoutes also needs the routes that an approval can be requested for, because executing an approval
// returns their responses.
func approvalRoutes(others []Noun) []Route {
	decision := codes(fault.NotFound, fault.ApprovalState, fault.DigestMismatch, fault.SessionNotBound, fault.OwnAccount, fault.AccessDenied, fault.NotInScope, fault.PrincipalOff)
	policy := []Route{
		endpoint[Nothing, schema.ApprovalPolicy](Route{
			Name: "getApprovalPolicy", Method: http.MethodGet, Path: "/api/approvals/policy", Extension: true, Session: true,
			Summary:    "Reads which operations take an approval.",
			Operations: grants(keyserver.OpReadApprovals),
		}),
		endpoint[schema.ApprovalPolicyRequest, schema.ApprovalPolicySaved](Route{
			Name: "setApprovalPolicy", Method: http.MethodPut, Path: "/api/approvals/policy", Extension: true, Session: true,
			Summary:    "Sets which operations take an approval, and verifies it by a fresh read.",
			Operations: grants(keyserver.OpSetApprovalPolicy), Faults: codes(fault.InvalidArgument, fault.NotSaved),
		}),
		endpoint[schema.ApprovalQuery, schema.ApprovalListing](Route{
			Name: "listApprovals", Method: http.MethodGet, Path: "/api/approvals", Extension: true, Session: true,
			Summary:    "Lists approvals by id, in pages; those that the caller asked for without any role.",
			Operations: grants(keyserver.OpReadApprovals),
		}),
		endpoint[schema.ByID, schema.Approval](Route{
			Name: "getApproval", Method: http.MethodGet, Path: "/api/approvals/{id}", Names: Unnamed, Extension: true, Session: true,
			Summary:    "Reads an approval; one that the caller asked for without any role.",
			Operations: grants(keyserver.OpReadApprovals), Faults: codes(fault.NotFound),
		}),
	}
	executed := codes(fault.NotFound, fault.ApprovalState, fault.AccessDenied)
	for _, n := range append(others, Noun{Routes: policy}) {
		for _, r := range n.Routes {
			if r.Askable() {
				executed = append(executed, r.Codes()...)
			}
		}
	}
	slices.Sort(executed)
	return append(policy,
		Route{
			Name: "askApproval", Method: http.MethodPost, Path: "/api/approvals", Extension: true, Session: true,
			Summary: "Asks others to approve a request, which a rule guards and the caller could make himself.",
			Faults:  codes(fault.InvalidArgument, fault.ApprovalLimit, fault.AccessDenied, fault.PrincipalOff, fault.NotInScope),
			Request: reflect.TypeFor[schema.ApprovalRequest](), Response: reflect.TypeFor[schema.Approval](), BodyLimit: 2 * SmallBody,
		}.withDefaults(),
		endpoint[schema.ApprovalDecision, schema.Approval](Route{
			Name: "approve", Method: http.MethodPost, Path: "/api/approvals/{id}/approve", Extension: true, Session: true,
			Summary: "Approves exactly the request of that digest. It takes a duty that a rule asks for, a session bound to a key, and somebody else than the asker.",
			Faults:  decision,
		}),
		endpoint[schema.ApprovalDecision, schema.Approval](Route{
			Name: "reject", Method: http.MethodPost, Path: "/api/approvals/{id}/reject", Extension: true, Session: true,
			Summary: "Rejects a request for good. It takes what approving takes.",
			Faults:  decision,
		}),
		endpoint[schema.ByID, schema.Approval](Route{
			Name: "withdrawApproval", Method: http.MethodPost, Path: "/api/approvals/{id}/withdraw", Extension: true, Session: true,
			Summary: "Withdraws a request that the caller asked for, or the caller's approval of somebody else's.",
			Faults:  codes(fault.NotFound, fault.ApprovalState, fault.AccessDenied, fault.NotInScope, fault.SessionNotBound, fault.PrincipalOff),
		}),
		Route{
			Name: "executeApproval", Method: http.MethodPost, Path: "/api/approvals/{id}/execute", Extension: true, Session: true,
			Summary: "Carries out an approved request, once, by the rights that its asker has now, and answers what its route answers.",
			Faults:  slices.Compact(executed), Request: reflect.TypeFor[schema.ByID](), Executes: true, Timeout: time.Minute, Judged: Verdicts,
		}.withDefaults(),
	)
}

func keyRoutes() []Route {
	return []Route{
		endpoint[schema.MintKeyRequest, schema.KeyMetadata](Route{
			Name: "mintKey", Method: http.MethodPost, Path: "/api/keys", Makes: keyserver.ChangeKey, Extension: true, Session: true,
			Summary:    "Mints a key, or imports one. The caller becomes its owner.",
			Operations: grants(keyserver.OpCreateKey), Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.KeyRequest, schema.KeyMetadata](Route{
			Name: "getKey", Method: http.MethodPost, Path: "/api/keys/get", Session: true,
			Summary:    "Reads key metadata by hidden link. Key material is never answered.",
			Operations: grants(keyserver.OpReadKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable),
		}),
		endpoint[schema.AuthorizeKeyRequest, schema.KeyGrant](Route{
			Name: "authorizeKey", Method: http.MethodPost, Path: "/api/keys/authorize", Session: true, Counts: true,
			Summary:    "Asks whether the caller may use a key. A yes is 200, a no is 403.",
			Operations: grants(keyserver.OpAuthorizeKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.KeyDisabled, fault.NotInScope, fault.PeerUnavailable),
		}),
		endpoint[schema.ExportKeyRequest, schema.ExportedKey](Route{
			Name: "exportKey", Method: http.MethodPost, Path: "/api/keys/export", Extension: true, Session: true,
			Summary:    "Answers a key of the caller's own, encrypted for the certificate of a transport principal.",
			Operations: grants(keyserver.OpExportKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.KeyDisabled, fault.KeyNotExportable, fault.NotInScope, fault.NotFound, fault.InvalidArgument),
		}),
		streamed[schema.HMACRequest, schema.HMACResponse](Route{
			Name: "computeHmac", Method: http.MethodPost, Path: "/api/crypto/hmac", Session: true, Counts: true,
			Summary:    "Computes HMAC-SHA384 of a message under a key that never leaves the key server.",
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
			Summary:    "Lists the metadata of keys that the caller, or a group of his, may read.",
			Operations: grants(keyserver.OpListKeys), Faults: codes(fault.NotInScope, fault.InvalidArgument),
		}),
		endpoint[schema.KeyRequest, schema.KeyStateSaved](Route{
			Name: "disableKey", Method: http.MethodPost, Path: "/api/keys/disable", Extension: true, Session: true,
			Summary:    "Rules every use of a key out until it is enabled, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change,
		}),
		endpoint[schema.KeyRequest, schema.KeyStateSaved](Route{
			Name: "enableKey", Method: http.MethodPost, Path: "/api/keys/enable", Extension: true, Session: true,
			Summary:    "Lets a key be used again, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change,
		}),
		endpoint[schema.DestroyKeyRequest, schema.KeyStateSaved](Route{
			Name: "destroyKey", Method: http.MethodPost, Path: "/api/keys/destroy", Extension: true, Session: true,
			Summary:    "Rules every use of a key out and lets its bytes go after some days, and verifies the state.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change, Effect: keyserver.EffectDestroyKey,
		}),
		endpoint[schema.KeyRequest, schema.KeyStateSaved](Route{
			Name: "restoreKey", Method: http.MethodPost, Path: "/api/keys/restore", Extension: true, Session: true,
			Summary:    "Keeps the bytes of a key that is being destroyed. It is disabled then, and the state is verified.",
			Operations: grants(keyserver.OpChangeKeyState), Faults: change,
		}),
		endpoint[schema.KeyRequest, schema.KeyRotated](Route{
			Name: "rotateKey", Method: http.MethodPost, Path: "/api/keys/rotate", Extension: true, Session: true,
			Summary:    "Mints the successor of the newest key of a line, with the same access control list, and verifies it.",
			Operations: grants(keyserver.OpRotateKey), Faults: change,
		}),
		endpoint[schema.KeyRotationRequest, schema.KeyRotationSaved](Route{
			Name: "setKeyRotation", Method: http.MethodPut, Path: "/api/keys/rotation", Extension: true, Session: true,
			Summary:    "Sets how the keys of a line follow each other by themselves, and verifies it.",
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
			Summary:    "Adds rights to a principal's entry, which is made where there is none, and verifies them.",
			Operations: amend, Faults: append(codes(fault.NotFound), written...),
		}),
		endpoint[schema.ACLChangeRequest, schema.ACLResponse](Route{
			Name: "updateAcl", Method: http.MethodPost, Path: "/api/keys/acl/update", Session: true,
			Summary:    "Sets an existing entry to a rights mask and verifies it.",
			Operations: amend, Faults: written,
		}),
		endpoint[schema.ACLRevokeRequest, schema.ACLResponse](Route{
			Name: "revokeAcl", Method: http.MethodPost, Path: "/api/keys/acl/revoke", Extension: true, Session: true,
			Summary:    "Removes a principal's entry and verifies its absence.",
			Operations: amend, Faults: written,
		}),
		endpoint[schema.KeyRequest, schema.ACLResponse](Route{
			Name: "getAcl", Method: http.MethodPost, Path: "/api/keys/acl/get", Extension: true, Session: true,
			Summary:    "Reads a key's access control list.",
			Operations: grants(keyserver.OpReadACL), Faults: denied,
		}),
	}
}

func recordRoutes() []Route {
	return []Route{
		endpoint[Nothing, schema.OperationList](Route{
			Name: "listOperations", Method: http.MethodGet, Path: "/api/operations", Extension: true, Session: true,
			Summary:    "Lists the catalogue of operations.",
			Operations: grants(keyserver.OpListOperations),
		}),
		endpoint[schema.AuditQuery, schema.AuditPage](Route{
			Name: "listAuditEntries", Method: http.MethodGet, Path: "/api/audit", Extension: true, Session: true,
			Summary:    "Reads the audit trail page by page, oldest or newest row first.",
			Operations: grants(keyserver.OpReadAudit), Faults: codes(fault.Archived),
		}),
		endpoint[Nothing, schema.Text](Route{
			Name: "getAuditCheckpoint", Method: http.MethodGet, Path: "/api/audit/checkpoint", Extension: true, Session: true,
			Summary: "Answers how far the audit tree has grown, signed (C2SP tlog-checkpoint).",
			Faults:  codes(fault.NotReady),
		}),
		endpoint[Nothing, schema.AuditKey](Route{
			Name: "getAuditKey", Method: http.MethodGet, Path: "/api/audit/key", Extension: true, Session: true,
			Summary: "Answers the name of the audit tree and the key that verifies its checkpoints.",
		}),
		endpoint[schema.ByRow, schema.Text](Route{
			Name: "getAuditReceipt", Method: http.MethodGet, Path: "/api/audit/{seq}/receipt", Extension: true, Session: true,
			Summary:    "Proves that a row is in the audit tree (C2SP tlog-proof), and waits until it is where it is new.",
			Operations: grants(keyserver.OpReadAudit), Faults: codes(fault.NotFound, fault.NotReady),
		}),
		endpoint[schema.AuditHashesRequest, schema.Octets](Route{
			Name: "getAuditHashes", Method: http.MethodGet, Path: "/api/audit/tile/{level}/{tile}", Extension: true, Session: true,
			Summary: "Answers hashes of the audit tree (C2SP tlog-tiles).",
			Faults:  codes(fault.NotFound),
		}),
		endpoint[schema.AuditEntriesRequest, schema.Octets](Route{
			Name: "getAuditEntries", Many: true, Method: http.MethodGet, Path: "/api/audit/tile/entries/{tile}", Extension: true, Session: true,
			Summary:    "Answers rows in the form that the audit tree hashes (C2SP tlog-tiles).",
			Operations: grants(keyserver.OpReadAudit), Faults: codes(fault.Archived, fault.NotFound),
		}),
		endpoint[Nothing, schema.Witness](Route{
			Name: "getWitness", Method: http.MethodGet, Path: "/api/witness", Extension: true, Session: true,
			Summary:    "Answers what this key server, as a witness, has seen of the logs of others, and the key of its cosignatures.",
			Operations: grants(keyserver.OpReadAudit),
		}),
		endpoint[schema.ChangesQuery, schema.ChangePage](Route{
			Name: "listChanges", Method: http.MethodGet, Path: "/api/changes", Extension: true, Session: true, Waits: true,
			Summary:    "Reads the change feed after a cursor, and waits for a change where there is none yet.",
			Operations: grants(keyserver.OpWatchChanges), Timeout: maxWait + ShortTimeout,
		}),
	}
}

func codes(c ...fault.Code) []fault.Code { return c }

func grants(ops ...keyserver.Operation) []keyserver.Operation { return ops }

// backupTime is the longest time of one backup. The database keeps all old rows until it ends.
const backupTime = 6 * time.Hour

// accessRoutes returns the routes of the OpenID AuthZEN Authorization API 1.0, which ask the gate for decisions.
func accessRoutes() []Route {
	return []Route{
		endpoint[schema.AccessRequest, schema.AccessDecision](Route{
			Name: "getDecision", Method: http.MethodPost, Path: "/access/v1/evaluation", Extension: true, Session: true,
			Summary: "Says whether the gate would let somebody do something (AuthZEN). Of oneself anybody may ask; otherwise it takes Explain Access.",
			Faults:  codes(fault.AccessDenied, fault.NotInScope, fault.InvalidArgument),
		}),
		endpoint[schema.AccessBatchRequest, schema.AccessDecisions](Route{
			Name: "getDecisions", Method: http.MethodPost, Path: "/access/v1/evaluations", Extension: true, Session: true,
			Summary: "Says the same to several questions. One that is refused itself is answered by a decision of false.",
			Faults:  codes(fault.AccessDenied, fault.NotInScope, fault.InvalidArgument),
		}),
	}
}

// explainRoutes returns the routes that explain decisions of the gate. They have no other effect.
func explainRoutes() []Route {
	return []Route{
		endpoint[schema.ExplainRequest, schema.Explanation](Route{
			Name: "getExplanation", Method: http.MethodPost, Path: "/api/explain", Extension: true, Session: true,
			Summary: "Says what the gate would answer to an operation, step by step, and the fewest changes that would turn it round. Of oneself anybody may ask, without with and at; otherwise it takes Explain Access.",
			Faults:  codes(fault.AccessDenied, fault.NotInScope, fault.NotFound, fault.InvalidArgument),
		}),
		endpoint[schema.WhoCanRequest, schema.WhoCanPage](Route{
			Name: "listCapable", Method: http.MethodPost, Path: "/api/who-can", Extension: true, Session: true,
			Summary:    "Lists who may do an operation, and by what, in pages by id.",
			Operations: grants(keyserver.OpExplainAccess), Faults: codes(fault.KeyNotFound, fault.InvalidArgument),
		}),
	}
}

func backupRoutes() []Route {
	return []Route{
		download[schema.BackupRequest](Route{
			Name: "createBackup", Method: http.MethodPost, Path: "/api/backups", Extension: true, Session: true,
			Summary:    "Makes a backup of the database while the service goes on, and answers it as it is made, encrypted for a recipient of age. One that is not whole does not open.",
			Operations: grants(keyserver.OpMakeBackup), Timeout: backupTime,
		}),
	}
}

// maxWait is the longest wait of a read of the change feed. The limit of its query parameter is the same.
const maxWait = 60 * time.Second

// AddCheckpoint is not in the table: its request and response are those of C2SP tlog-witness, and JSON only if it
// fails.
var AddCheckpoint = Route{
	Name: "addCheckpoint", Method: http.MethodPost, Path: "/api/witness/add-checkpoint", Extension: true,
	BodyLimit: 16 << 10, Timeout: ShortTimeout,
}
