package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Routes returns the whole table, in the order of the reference.
func Routes() []Route {
	var all []Route
	for _, n := range Nouns() {
		for _, r := range n.Routes {
			r.Tag = n.Tag
			all = append(all, r)
		}
	}
	return all
}

// Noun is what some routes are about.
type Noun struct {
	Tag    string
	About  string
	Routes []Route
}

// Nouns returns the whole table by what its routes are about.
func Nouns() []Noun {
	all := []Noun{
		{"Service", "The service itself: whether it works, what it is, and this document.", serviceRoutes()},
		{"Sessions", "Logging in and out. The session id of a login is what every other route asks for.", sessionRoutes()},
		{"Keys", "Symmetric keys, and what can be done with one that never leaves the key server.", keyRoutes()},
		{"Access control lists", "Who holds which rights over one key.", aclRoutes()},
		{"Principals", "Users, groups and transport identities: whoever can hold roles and rights.", principalRoutes()},
		{"Groups", "Principals whose members hold the group's roles and rights, too.", groupRoutes()},
		{"Roles", "Named sets of operations. A principal may do what one of its roles grants.", roleRoutes()},
		{"Trusted CAs", "The certificate authorities whose certificates the key server accepts.", trustedCARoutes()},
		{"ACL templates", "Lists of members that become entries on the access control list of each new key.", aclTemplateRoutes()},
		{"Templated directories", "Which ACL template applies to keys that are minted under a path.", templatedDirectoryRoutes()},
		{"Trusted servers", "Peer key servers, and how this one is registered with them.", trustedServerRoutes()},
		{"Principal trusts", "What a peer is told about a principal.", principalTrustRoutes()},
		{"Certificates", "Client certificates: issuing, renewing, enrolling and finding them.", certificateRoutes()},
		{"Revocation", "Revocation lists of trusted CAs, and how much they count.", revocationRoutes()},
		{"Records", "What was done and what has changed: operations, the audit trail and the change feed.", recordRoutes()},
	}
	return append(all, Noun{"Approvals", "What takes two people: the policy that says so, and the requests that others are asked to approve.", approvalRoutes(all)})
}

func serviceRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "getHealth", Method: http.MethodGet, Path: "/api/health", Extension: true, Uncounted: true, Unconditional: true,
			Summary: "Says that the process serves.",
		}, health),
		endpoint(Route{
			Name: "getReadiness", Method: http.MethodGet, Path: "/api/ready", Extension: true, Uncounted: true, Unconditional: true,
			Summary: "Says part by part whether the service can do its work, and when a failing part is tried again.",
			Faults:  codes(fault.NotReady), judged: codes(fault.NotReady),
		}, ready),
		endpoint(Route{
			Name: "getVersion", Method: http.MethodPost, Path: "/api/server/version", Session: true,
			Summary:    "Reads the key server's version record.",
			Operations: grants(keyserver.OpReadVersion),
		}, version),
		endpoint(Route{
			Name: "getConfiguration", Method: http.MethodPost, Path: "/api/config/get", Session: true,
			Summary:    "Reads what may leave of the key server's configuration. Credentials never do.",
			Operations: grants(keyserver.OpReadConfiguration), Faults: codes(fault.NotFound),
		}, getConfiguration),
		{
			Name: "getOpenApiDocument", Method: http.MethodGet, Path: "/api/openapi.json", Extension: true, Uncounted: true,
			Summary:   "This document.",
			BodyLimit: smallBody, Timeout: shortTimeout,
			Request: typeOf[nothing](), Response: nil, run: openAPI,
		},
	}
}

func sessionRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "login", Method: http.MethodPost, Path: "/api/sessions", Extension: true,
			Summary: "Logs in. The session id is shown this once.",
			Faults: append(codes(fault.InvalidCredentials, fault.LoginThrottled, fault.ProviderUnavailable, fault.SessionLimit,
				fault.AuditUnavailable, fault.StoreUnavailable, fault.StoreTampered, fault.NotCurrent), append(slices.Clone(fromSessionFaults), proofFaults...)...),
		}, login),
		endpoint(Route{
			Name: "getCurrentSession", Method: http.MethodGet, Path: "/api/sessions/current", Extension: true, Session: true,
			Summary: "Describes the calling session.",
		}, currentSession),
		endpoint(Route{
			Name: "endCurrentSession", Method: http.MethodDelete, Path: "/api/sessions/current", Extension: true, Session: true,
			Summary: "Ends the calling session.",
		}, endSession),
		endpoint(Route{
			Name: "listSessions", Method: http.MethodGet, Path: "/api/sessions", Extension: true, Session: true,
			Summary:    "Lists live sessions by id, in pages; those of the caller's own principal without any role.",
			Operations: grants(keyserver.OpListSessions),
		}, listSessions),
		endpoint(Route{
			Name: "endSession", Method: http.MethodDelete, Path: "/api/sessions/{id}", Extension: true, Session: true,
			Summary:    "Ends a session and those made from it; one of the caller's own principal without any role.",
			Operations: grants(keyserver.OpEndSessions), Faults: codes(fault.NotFound),
		}, endOneSession),
		endpoint(Route{
			Name: "endSessionsOfPrincipal", Method: http.MethodDelete, Path: "/api/principals/{id}/sessions", Extension: true, Session: true,
			Summary:    "Ends every session of a principal and those made from them; the caller's own without any role.",
			Operations: grants(keyserver.OpEndSessions), Faults: codes(fault.NotFound),
		}, endSessionsOf),
	}
}

// approvalRoutes also takes the routes that can be asked for: executing an
// approval answers what they answer.
func approvalRoutes(others []Noun) []Route {
	decision := codes(fault.NotFound, fault.ApprovalState, fault.DigestMismatch, fault.SessionNotBound, fault.OwnAccount, fault.AccessDenied, fault.PrincipalOff)
	policy := []Route{
		endpoint(Route{
			Name: "getApprovalPolicy", Method: http.MethodGet, Path: "/api/approvals/policy", Extension: true, Session: true,
			Summary:    "Reads which operations take an approval.",
			Operations: grants(keyserver.OpReadApprovals),
		}, getApprovalPolicy),
		endpoint(Route{
			Name: "setApprovalPolicy", Method: http.MethodPut, Path: "/api/approvals/policy", Extension: true, Session: true,
			Summary:    "Sets which operations take an approval, and verifies it by a fresh read.",
			Operations: grants(keyserver.OpSetApprovalPolicy), Faults: codes(fault.InvalidArgument, fault.NotSaved),
		}, setApprovalPolicy),
		endpoint(Route{
			Name: "listApprovals", Method: http.MethodGet, Path: "/api/approvals", Extension: true, Session: true,
			Summary:    "Lists approvals by id, in pages; those that the caller asked for without any role.",
			Operations: grants(keyserver.OpReadApprovals),
		}, listApprovals),
		endpoint(Route{
			Name: "getApproval", Method: http.MethodGet, Path: "/api/approvals/{id}", Extension: true, Session: true,
			Summary:    "Reads an approval; one that the caller asked for without any role.",
			Operations: grants(keyserver.OpReadApprovals), Faults: codes(fault.NotFound),
		}, getApproval),
	}
	executed := codes(fault.NotFound, fault.ApprovalState, fault.AccessDenied)
	for _, n := range append(others, Noun{Routes: policy}) {
		for _, r := range n.Routes {
			if r.askable() {
				executed = append(executed, r.every()...)
			}
		}
	}
	slices.Sort(executed)
	return append(policy,
		Route{
			Name: "askApproval", Method: http.MethodPost, Path: "/api/approvals", Extension: true, Session: true,
			Summary: "Asks others to approve a request, which a rule guards and the caller could make himself.",
			Faults:  codes(fault.InvalidArgument, fault.ApprovalLimit, fault.AccessDenied, fault.PrincipalOff, fault.NotInScope),
			Request: typeOf[schema.ApprovalRequest](), Response: typeOf[schema.Approval](), run: askApproval, BodyLimit: 2 * smallBody,
		}.withDefaults(),
		endpoint(Route{
			Name: "approve", Method: http.MethodPost, Path: "/api/approvals/{id}/approve", Extension: true, Session: true,
			Summary: "Approves exactly the request of that digest. It takes a duty that a rule asks for, a session bound to a key, and somebody else than the asker.",
			Faults:  decision,
		}, approve),
		endpoint(Route{
			Name: "reject", Method: http.MethodPost, Path: "/api/approvals/{id}/reject", Extension: true, Session: true,
			Summary: "Rejects a request for good. It takes what approving takes.",
			Faults:  decision,
		}, reject),
		Route{
			Name: "executeApproval", Method: http.MethodPost, Path: "/api/approvals/{id}/execute", Extension: true, Session: true,
			Summary: "Carries out an approved request, once, by the rights that its asker has now, and answers what its route answers.",
			Faults:  slices.Compact(executed), Request: typeOf[schema.ByID](), executes: true, run: executeApproval, Timeout: time.Minute, judged: verdicts,
		}.withDefaults(),
	)
}

func keyRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "mintKey", Method: http.MethodPost, Path: "/api/keys", Extension: true, Session: true,
			Summary:    "Mints a key, or imports one. The caller becomes its owner.",
			Operations: grants(keyserver.OpCreateKey), Faults: codes(fault.InvalidArgument),
		}, mintKey),
		endpoint(Route{
			Name: "getKey", Method: http.MethodPost, Path: "/api/keys/get", Session: true,
			Summary:    "Reads key metadata by hidden link. Key material is never answered.",
			Operations: grants(keyserver.OpReadKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable),
		}, getKey),
		endpoint(Route{
			Name: "authorizeKey", Method: http.MethodPost, Path: "/api/keys/authorize", Session: true, Counts: true,
			Summary:    "Asks whether the caller may use a key. A yes is 200, a no is 403.",
			Operations: grants(keyserver.OpAuthorizeKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable),
		}, authorizeKey),
		endpoint(Route{
			Name: "exportKey", Method: http.MethodPost, Path: "/api/keys/export", Extension: true, Session: true,
			Summary:    "Answers a key of the caller's own, encrypted for the certificate of a transport principal.",
			Operations: grants(keyserver.OpExportKey), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.NotFound, fault.InvalidArgument),
		}, exportKey),
		streamed[schema.HMACRequest, schema.HMACResponse](Route{
			Name: "computeHmac", Method: http.MethodPost, Path: "/api/crypto/hmac", Session: true, Counts: true,
			Summary:    "Computes HMAC-SHA384 of a message under a key that never leaves the key server.",
			Operations: grants(keyserver.OpHMAC), Faults: codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable),
			BodyLimit: hmacBodyLimit, Timeout: time.Minute,
		}, hmac),
	}
}

func aclRoutes() []Route {
	amend := grants(keyserver.OpReadACL, keyserver.OpAmendACL)
	denied := codes(fault.ACLNotFound, fault.ACLDenied, fault.NotInScope, fault.PeerUnavailable)
	written := append(codes(fault.NotVerified, fault.ReadbackFailed, fault.InvalidArgument, fault.PeerNoAnswer), denied...)
	return []Route{
		endpoint(Route{
			Name: "grantAcl", Method: http.MethodPost, Path: "/api/keys/acl/grant", Extension: true, Session: true,
			Summary:    "Adds rights to a principal's entry, which is made where there is none, and verifies them.",
			Operations: amend, Faults: append(codes(fault.NotFound), written...),
		}, grantACL),
		endpoint(Route{
			Name: "updateAcl", Method: http.MethodPost, Path: "/api/keys/acl/update", Session: true,
			Summary:    "Sets an existing entry to a rights mask and verifies it.",
			Operations: amend, Faults: written,
		}, amendACL),
		endpoint(Route{
			Name: "revokeAcl", Method: http.MethodPost, Path: "/api/keys/acl/revoke", Extension: true, Session: true,
			Summary:    "Removes a principal's entry and verifies its absence.",
			Operations: amend, Faults: written,
		}, revokeACL),
		endpoint(Route{
			Name: "getAcl", Method: http.MethodPost, Path: "/api/keys/acl/get", Extension: true, Session: true,
			Summary:    "Reads a key's access control list.",
			Operations: grants(keyserver.OpReadACL), Faults: denied,
		}, getACL),
	}
}

func principalRoutes() []Route {
	created := codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument)
	create := grants(keyserver.OpReadPrincipal, keyserver.OpCreatePrincipal)
	updated := codes(fault.Escalation, fault.DutiesConflict, fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument)
	return []Route{
		endpoint(Route{
			Name: "listPrincipals", Method: http.MethodGet, Path: "/api/principals", Session: true,
			Summary:    "Lists the principals of one type by name, whole or in pages.",
			Operations: grants(keyserver.OpListPrincipals), Faults: codes(fault.InvalidArgument),
		}, listPrincipals),
		endpoint(Route{
			Name: "lookUpPrincipals", Method: http.MethodPost, Path: "/api/principals/lookup", Session: true,
			Summary:    "Looks principals up by pairs of system id and principal id.",
			Operations: grants(keyserver.OpLookupPrincipals), Faults: codes(fault.InvalidArgument),
		}, lookupPrincipals),
		endpoint(Route{
			Name: "createPasswordPrincipal", Method: http.MethodPost, Path: "/api/principals/password", Extension: true, Session: true,
			Summary:    "Creates a password principal and verifies name, type and roles.",
			Operations: create, Faults: created,
		}, createPasswordPrincipal),
		endpoint(Route{
			Name: "createLdapPrincipal", Method: http.MethodPost, Path: "/api/principals/ldap", Extension: true, Session: true,
			Summary:    "Creates an ldap principal and verifies name, type and roles.",
			Operations: create, Faults: created,
		}, createLDAPPrincipal),
		endpoint(Route{
			Name: "createXauthPrincipal", Method: http.MethodPost, Path: "/api/principals/xauth", Extension: true, Session: true,
			Summary:    "Creates an xauth principal for one issuer and subject, and verifies all of it.",
			Operations: create, Faults: created,
		}, createXAuthPrincipal),
		endpoint(Route{
			Name: "getPrincipal", Method: http.MethodGet, Path: "/api/principals/{id}", Extension: true, Session: true,
			Summary:    "Reads one principal.",
			Operations: grants(keyserver.OpReadPrincipal), Faults: codes(fault.NotFound),
		}, getPrincipal),
		endpoint(Route{
			Name: "updatePrincipalFlags", Method: http.MethodPut, Path: "/api/principals/{id}/flags", Session: true,
			Summary:    "Sets the flags that are named, moves no other bit, and verifies the whole word.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags),
			Faults:     append(codes(fault.NoFlagWord), updated...),
		}, updatePrincipalFlags),
		endpoint(Route{
			Name: "addDelegate", Method: http.MethodPut, Path: "/api/principals/{id}/delegates/{pid}", Extension: true, Session: true,
			Summary:    "Names who alone may act with the rights of a principal, beside others that are named, and verifies it; who is named stays.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags),
			Faults:     append(codes(fault.NoFlagWord), updated...),
		}, addDelegate),
		endpoint(Route{
			Name: "removeDelegate", Method: http.MethodDelete, Path: "/api/principals/{id}/delegates/{pid}", Extension: true, Session: true,
			Summary:    "Takes the name of a delegate away, with the last one the delegation flag, and verifies it.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalFlags),
			Faults:     codes(fault.NoFlagWord, fault.NotRemoved, fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.ReadbackFailed, fault.InvalidArgument),
		}, removeDelegate),
		endpoint(Route{
			Name: "updatePrincipalRoles", Method: http.MethodPut, Path: "/api/principals/{id}/roles", Extension: true, Session: true,
			Summary:    "Replaces the roles of a principal and verifies them.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpUpdatePrincipalRoles), Faults: updated,
		}, updatePrincipalRoles),
		endpoint(Route{
			Name: "setPassword", Method: http.MethodPut, Path: "/api/principals/{id}/password", Extension: true, Session: true,
			Summary:    "Gives a password principal another password and ends its sessions; the caller's own without any role, by the present one.",
			Operations: grants(keyserver.OpSetPassword),
			Faults: codes(fault.Escalation, fault.NotFound, fault.NoPassword, fault.InvalidCredentials, fault.LoginThrottled,
				fault.NotSaved, fault.ReadbackFailed),
		}, setPassword),
		endpoint(Route{
			Name: "deletePrincipal", Method: http.MethodDelete, Path: "/api/principals/{id}", Extension: true, Session: true, Timeout: time.Minute,
			Summary:    "Deletes a principal with its sessions and certificates, closes its entries on keys, and verifies its absence.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpDeletePrincipal),
			Faults: codes(fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.Escalation, fault.InUse, fault.InvalidArgument,
				fault.NotRemoved, fault.ReadbackFailed),
		}, deletePrincipal),
	}
}

func groupRoutes() []Route {
	change := grants(keyserver.OpReadPrincipal, keyserver.OpChangeGroupMembers)
	changed := codes(fault.NotFound, fault.BuiltInPrincipal, fault.OwnAccount, fault.ReadbackFailed, fault.InvalidArgument)
	return []Route{
		endpoint(Route{
			Name: "createGroup", Method: http.MethodPost, Path: "/api/principals/groups", Extension: true, Session: true,
			Summary:    "Creates a group and verifies name, type and roles.",
			Operations: grants(keyserver.OpReadPrincipal, keyserver.OpCreatePrincipal),
			Faults:     codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}, createGroup),
		endpoint(Route{
			Name: "listGroupMembers", Method: http.MethodGet, Path: "/api/principals/groups/{gid}/members", Extension: true, Session: true,
			Summary:    "Lists the members of a group by id, whole or in pages.",
			Operations: grants(keyserver.OpListGroupMembers), Faults: codes(fault.NotFound, fault.InvalidArgument),
		}, listGroupMembers),
		endpoint(Route{
			Name: "addGroupMember", Method: http.MethodPut, Path: "/api/principals/groups/{gid}/members/{pid}", Extension: true, Session: true,
			Summary:    "Puts a principal into a group and verifies it; one that is in it stays.",
			Operations: change, Faults: append(codes(fault.Escalation, fault.DutiesConflict, fault.NotSaved), changed...),
		}, addGroupMember),
		endpoint(Route{
			Name: "removeGroupMember", Method: http.MethodDelete, Path: "/api/principals/groups/{gid}/members/{pid}", Extension: true, Session: true,
			Summary:    "Takes a principal out of a group and verifies it.",
			Operations: change, Faults: append(codes(fault.NotRemoved), changed...),
		}, removeGroupMember),
	}
}

func roleRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listRoles", Method: http.MethodGet, Path: "/api/roles", Session: true,
			Summary:    "Lists the roles.",
			Operations: grants(keyserver.OpListRoles),
		}, listRoles),
		endpoint(Route{
			Name: "createRole", Method: http.MethodPost, Path: "/api/roles", Extension: true, Session: true,
			Summary:    "Creates a role and verifies name and operations.",
			Operations: grants(keyserver.OpListRoles, keyserver.OpCreateRole),
			Faults:     codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}, createRole),
		endpoint(Route{
			Name: "updateRole", Method: http.MethodPut, Path: "/api/roles/{id}", Session: true,
			Summary:    "Renames a role, replaces its operations, or both, and verifies each.",
			Operations: grants(keyserver.OpListRoles, keyserver.OpUpdateRole),
			Faults:     codes(fault.Escalation, fault.DutiesConflict, fault.NotFound, fault.BuiltIn, fault.AlreadyExists, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}, updateRole),
		endpoint(Route{
			Name: "deleteRole", Method: http.MethodDelete, Path: "/api/roles/{id}", Extension: true, Session: true,
			Summary:    "Deletes a role, also from every principal that holds it, and verifies its absence.",
			Operations: grants(keyserver.OpListRoles, keyserver.OpDeleteRole),
			Faults:     codes(fault.NotFound, fault.BuiltIn, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
		}, deleteRole),
	}
}

func trustedCARoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listTrustedCas", Method: http.MethodGet, Path: "/api/trusted-cas", Extension: true, Session: true,
			Summary:    "Lists the trusted CAs.",
			Operations: grants(keyserver.OpListTrustedCAs),
		}, listTrustedCAs),
		endpoint(Route{
			Name: "addTrustedCa", Method: http.MethodPost, Path: "/api/trusted-cas", Session: true, BodyLimit: 2 * smallBody,
			Summary:    "Adds one CA certificate to the trusted list and verifies it by a fresh read.",
			Operations: grants(keyserver.OpListTrustedCAs, keyserver.OpAddTrustedCA),
			Faults:     codes(fault.AlreadyTrusted, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}, addTrustedCA),
		endpoint(Route{
			Name: "removeTrustedCa", Method: http.MethodPost, Path: "/api/trusted-cas/remove", Session: true,
			Summary:    "Removes a CA from the trusted list and verifies its absence.",
			Operations: grants(keyserver.OpListTrustedCAs, keyserver.OpRemoveTrustedCA),
			Faults:     codes(fault.NotTrusted, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
		}, removeTrustedCA),
	}
}

func trustedServerRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listTrustedServers", Method: http.MethodGet, Path: "/api/trusted-servers", Session: true,
			Summary:    "Lists the registered peer key servers, or finds them by server name.",
			Operations: grants(keyserver.OpListTrustedServers), Faults: codes(fault.NotFound),
		}, listTrustedServers),
		endpoint(Route{
			Name: "addTrustedServer", Method: http.MethodPost, Path: "/api/trusted-servers", Session: true, BodyLimit: 2 * smallBody,
			Summary:    "Registers a peer from its trust blob and verifies it by a fresh list. ACL rows that its last removal purged come back. With replace, an extension, the record of a registered peer is replaced instead.",
			Operations: grants(keyserver.OpListTrustedServers, keyserver.OpAddTrustedServer),
			Faults:     codes(fault.AlreadyExists, fault.NotPersisted, fault.InvalidArgument),
		}, addTrustedServer),
		endpoint(Route{
			Name: "updateTrustedServer", Method: http.MethodPut, Path: "/api/trusted-servers/{systemId}", Session: true,
			Summary:    "Changes a peer's friendly name, its description, or both, and verifies each.",
			Operations: grants(keyserver.OpListTrustedServers, keyserver.OpUpdateTrustedServer),
			Faults:     codes(fault.NotFound, fault.NotPersisted, fault.InvalidArgument),
		}, updateTrustedServer),
		endpoint(Route{
			Name: "removeTrustedServer", Method: http.MethodDelete, Path: "/api/trusted-servers/{systemId}", Session: true,
			Summary:    "Removes a peer with its transport principal, purges the ACL rows of its principals, and verifies its absence.",
			Operations: grants(keyserver.OpListTrustedServers, keyserver.OpRemoveTrustedServer),
			Faults:     codes(fault.NotFound, fault.NotRemoved, fault.InvalidArgument),
		}, removeTrustedServer),
		endpoint(Route{
			Name: "getLocalTrustInfo", Method: http.MethodGet, Path: "/api/trust/local-info", Extension: true, Session: true,
			Summary:    "Reads this server's own trust blob and its fields.",
			Operations: grants(keyserver.OpReadTrustInfo),
		}, localTrustInfo),
	}
}

func principalTrustRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listPrincipalTrusts", Method: http.MethodGet, Path: "/api/principal-trusts", Extension: true, Session: true,
			Summary:    "Lists principal trusts: what peers are told about principals.",
			Operations: grants(keyserver.OpListPrincipalTrusts), Faults: codes(fault.InvalidArgument),
		}, listPrincipalTrusts),
		endpoint(Route{
			Name: "createPrincipalTrust", Method: http.MethodPost, Path: "/api/principal-trusts", Extension: true, Session: true,
			Summary:    "Makes the row of a principal for a registered peer and verifies it.",
			Operations: grants(keyserver.OpListPrincipalTrusts, keyserver.OpCreatePrincipalTrust),
			Faults:     codes(fault.NotFound, fault.AlreadyExists, fault.NotPersisted, fault.InvalidArgument),
		}, createPrincipalTrust),
		endpoint(Route{
			Name: "updatePrincipalTrust", Method: http.MethodPut, Path: "/api/principal-trusts/{id}", Session: true,
			Summary:    "Changes the flag of a principal trust and verifies it.",
			Operations: grants(keyserver.OpListPrincipalTrusts, keyserver.OpUpdatePrincipalTrust),
			Faults:     codes(fault.NotFound, fault.NotPersisted, fault.InvalidArgument),
		}, updatePrincipalTrust),
		endpoint(Route{
			Name: "deletePrincipalTrust", Method: http.MethodDelete, Path: "/api/principal-trusts/{id}", Extension: true, Session: true,
			Summary:    "Deletes a principal trust and verifies its absence.",
			Operations: grants(keyserver.OpListPrincipalTrusts, keyserver.OpDeletePrincipalTrust),
			Faults:     codes(fault.NotFound, fault.NotRemoved, fault.InvalidArgument),
		}, deletePrincipalTrust),
	}
}

func aclTemplateRoutes() []Route {
	change := grants(keyserver.OpReadACLTemplateMembers, keyserver.OpChangeACLTemplateMembers)
	return []Route{
		endpoint(Route{
			Name: "listAclTemplates", Method: http.MethodGet, Path: "/api/acl-templates", Extension: true, Session: true,
			Summary:    "Lists the ACL templates.",
			Operations: grants(keyserver.OpListACLTemplates),
		}, listACLTemplates),
		endpoint(Route{
			Name: "createAclTemplate", Method: http.MethodPost, Path: "/api/acl-templates", Extension: true, Session: true,
			Summary:    "Creates an ACL template with the caller as its first member, holding OWNER, and verifies both.",
			Operations: grants(keyserver.OpListACLTemplates, keyserver.OpCreateACLTemplate),
			Faults:     codes(fault.AlreadyExists, fault.NotSaved, fault.InvalidArgument),
		}, createACLTemplate),
		endpoint(Route{
			Name: "renameAclTemplate", Method: http.MethodPut, Path: "/api/acl-templates/{id}", Session: true,
			Summary:    "Renames an ACL template for a member that holds WRITE, and verifies the name.",
			Operations: grants(keyserver.OpListACLTemplates, keyserver.OpUpdateACLTemplate),
			Faults:     codes(fault.NotFound, fault.NotWritable, fault.AlreadyExists, fault.NotSaved),
		}, renameACLTemplate),
		endpoint(Route{
			Name: "deleteAclTemplate", Method: http.MethodDelete, Path: "/api/acl-templates/{id}", Extension: true, Session: true,
			Summary:    "Deletes an ACL template that no templated directory uses, and verifies its absence. Keys keep the entries that they got from it.",
			Operations: grants(keyserver.OpListACLTemplates, keyserver.OpDeleteACLTemplate),
			Faults:     codes(fault.NotFound, fault.InUse, fault.NotRemoved),
		}, deleteACLTemplate),
		endpoint(Route{
			Name: "listAclTemplateMembers", Method: http.MethodGet, Path: "/api/acl-templates/{id}/members", Extension: true, Session: true,
			Summary:    "Lists the members of an ACL template.",
			Operations: grants(keyserver.OpReadACLTemplateMembers), Faults: codes(fault.NotFound),
		}, listTemplateMembers),
		endpoint(Route{
			Name: "setAclTemplateMember", Method: http.MethodPost, Path: "/api/acl-templates/{id}/members", Extension: true, Session: true,
			Summary:    "Makes a principal a member with exactly these rights and limits, whatever it was before, and verifies them.",
			Operations: change,
			Faults:     codes(fault.NotFound, fault.NotWritable, fault.LastWriter, fault.NotSaved, fault.InvalidArgument),
		}, putTemplateMember),
		endpoint(Route{
			Name: "removeAclTemplateMember", Method: http.MethodDelete, Path: "/api/acl-templates/{id}/members/{systemId}/{principalId}", Extension: true, Session: true,
			Summary:    "Ends a membership and verifies it. The last member that holds WRITE without an end stays.",
			Operations: change,
			Faults:     codes(fault.NotFound, fault.NotWritable, fault.LastWriter, fault.NotRemoved),
		}, removeTemplateMember),
	}
}

func templatedDirectoryRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listTemplatedDirectories", Method: http.MethodGet, Path: "/api/templated-directories", Session: true,
			Summary:    "Lists the templated directories, or looks them up by path or by ACL template.",
			Operations: grants(keyserver.OpListTemplatedDirectories),
		}, listTemplatedDirectories),
		endpoint(Route{
			Name: "createTemplatedDirectory", Method: http.MethodPost, Path: "/api/templated-directories", Extension: true, Session: true,
			Summary:    "Applies an ACL template to keys that are minted under a path, and verifies every field.",
			Operations: grants(keyserver.OpListTemplatedDirectories, keyserver.OpCreateTemplatedDirectory),
			Faults:     codes(fault.AlreadyExists, fault.NotSaved, fault.InvalidArgument),
		}, createTemplatedDirectory),
		endpoint(Route{
			Name: "deleteTemplatedDirectory", Method: http.MethodDelete, Path: "/api/templated-directories/{id}", Extension: true, Session: true,
			Summary:    "Deletes a templated directory and verifies its absence. Keys that were minted under it keep their entries.",
			Operations: grants(keyserver.OpListTemplatedDirectories, keyserver.OpDeleteTemplatedDirectory),
			Faults:     codes(fault.NotFound, fault.NotRemoved),
		}, deleteTemplatedDirectory),
	}
}

func certificateRoutes() []Route {
	find := grants(keyserver.OpFindCertificates)
	unsaved := codes(fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument)
	return []Route{
		endpoint(Route{
			Name: "issueCertificate", Method: http.MethodPost, Path: "/api/certificates", Extension: true, Session: true, BodyLimit: 2 * smallBody,
			Summary:    "Issues a client certificate from a PKCS#10 request, which is saved, and verifies both. Issuing does not enrol.",
			Operations: append(grants(keyserver.OpIssueCertificate), find...), Faults: unsaved,
		}, issueCertificate),
		endpoint(Route{
			Name: "renewCertificate", Method: http.MethodPost, Path: "/api/certificates/renew", Session: true, BodyLimit: 2 * smallBody,
			Summary:    "Issues a certificate anew from its saved request, marks the old one expired, and verifies both.",
			Operations: append(grants(keyserver.OpRenewCertificate), find...), Faults: append(codes(fault.NotFound, fault.NoSavedRequest), unsaved...),
		}, renewCertificate),
		endpoint(Route{
			Name: "enrollCertificates", Method: http.MethodPost, Path: "/api/certificates/enroll", Extension: true, Session: true, BodyLimit: 16 * smallBody,
			Summary:    "Enrols certificates as transport principals, all or none, and verifies each.",
			Operations: append(grants(keyserver.OpEnrollCertificate, keyserver.OpReadPrincipal), find...), Faults: append(codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists), unsaved...),
		}, enrollCertificates),
		endpoint(Route{
			Name: "findCertificatesBySubject", Method: http.MethodPost, Path: bySubjectPath, Extension: true, Session: true,
			Summary:    "Finds certificates by subject, in which % stands for any text and every other character for itself.",
			Operations: find, Faults: codes(fault.InvalidArgument),
		}, certificatesBySubject),
		endpoint(Route{
			Name: "findCertificatesByTransportPrincipal", Method: http.MethodPost, Path: "/api/certificates/by-transport-principal", Session: true,
			Summary:    "Finds a transport principal's certificates by their exact subject.",
			Operations: find, Faults: codes(fault.InvalidArgument),
		}, certificatesByTransportPrincipal),
		endpoint(Route{
			Name: "resetTransportPrincipal", Method: http.MethodPost, Path: "/api/transport-principals/reset", Extension: true, Session: true,
			Summary:    "Drops a transport principal's certificates, ends its sessions, and verifies that no certificate is left.",
			Operations: append(grants(keyserver.OpResetTransportPrincipal, keyserver.OpReadPrincipal), find...),
			Faults:     codes(fault.NotFound, fault.BuiltInPrincipal, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
		}, resetTransportPrincipal),
	}
}

func revocationRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listRevocationIssuers", Method: http.MethodGet, Path: "/api/revocation/issuers", Extension: true, Session: true,
			Summary:    "Lists the trusted CAs with their revocation policy and how fresh the evidence is.",
			Operations: grants(keyserver.OpListRevocationIssuers),
		}, listRevocationIssuers),
		endpoint(Route{
			Name: "getRevocationPolicy", Method: http.MethodGet, Path: "/api/revocation/issuers/{digest}/policy", Extension: true, Session: true,
			Summary:    "Reads the revocation policy of a trusted CA.",
			Operations: grants(keyserver.OpReadRevocationPolicy), Faults: codes(fault.NotFound),
		}, getRevocationPolicy),
		endpoint(Route{
			Name: "setRevocationPolicy", Method: http.MethodPut, Path: "/api/revocation/issuers/{digest}/policy", Extension: true, Session: true,
			Summary:    "Sets the revocation policy of a trusted CA and verifies it.",
			Operations: grants(keyserver.OpReadRevocationPolicy, keyserver.OpSetRevocationPolicy),
			Faults:     codes(fault.NotFound, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}, setRevocationPolicy),
		endpoint(Route{
			Name: "importCrl", Method: http.MethodPost, Path: "/api/revocation/crls", Extension: true, Session: true, BodyLimit: crlBodyLimit, Timeout: time.Minute,
			Summary:    "Imports a revocation list that a trusted CA signed, unless it is older than the one held, and verifies it.",
			Operations: grants(keyserver.OpListRevocationIssuers, keyserver.OpImportCRL),
			Faults:     codes(fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}, importCRL),
	}
}

func recordRoutes() []Route {
	return []Route{
		endpoint(Route{
			Name: "listOperations", Method: http.MethodGet, Path: "/api/operations", Extension: true, Session: true,
			Summary:    "Lists the catalogue of operations.",
			Operations: grants(keyserver.OpListOperations),
		}, listOperations),
		endpoint(Route{
			Name: "listAuditEntries", Method: http.MethodGet, Path: "/api/audit", Extension: true, Session: true,
			Summary:    "Reads the audit trail page by page, oldest row first.",
			Operations: grants(keyserver.OpReadAudit),
		}, readAudit),
		endpoint(Route{
			Name: "listChanges", Method: http.MethodGet, Path: "/api/changes", Extension: true, Session: true, Waits: true,
			Summary:    "Reads the change feed after a cursor, and waits for a change where there is none yet.",
			Operations: grants(keyserver.OpWatchChanges), Timeout: maxWait + shortTimeout,
		}, readChanges),
	}
}

func codes(c ...fault.Code) []fault.Code { return c }

func grants(ops ...keyserver.Operation) []keyserver.Operation { return ops }
