package routes

import (
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// The routes about trust are the second half of the table of routes.

func trustedCARoutes() []Route {
	return []Route{
		endpoint[schema.TrustedCAsQuery, schema.TrustedCAList](Route{
			Name: "listTrustedCas", Method: http.MethodGet, Path: "/api/trusted-cas", Extension: true, Session: true,
			Summary:    "Lists the trusted CAs.",
			Operations: grants(keyserver.OpListTrustedCAs),
		}),
		endpoint[schema.AddTrustedCARequest, schema.TrustedCAAdded](Route{
			Name: "addTrustedCa", Method: http.MethodPost, Path: "/api/trusted-cas", Makes: keyserver.ChangeTrustedCA, Session: true, BodyLimit: 2 * SmallBody,
			Summary:    "Adds a CA certificate to the trusted CAs and verifies it with a second read.",
			Operations: grants(keyserver.OpListTrustedCAs, keyserver.OpAddTrustedCA),
			Faults:     codes(fault.AlreadyTrusted, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
		endpoint[schema.RemoveTrustedCARequest, schema.TrustedCARemoved](Route{
			Name: "removeTrustedCa", Method: http.MethodPost, Path: "/api/trusted-cas/remove", Session: true,
			Summary:    "Removes a CA from the trusted CAs and verifies its absence.",
			Operations: grants(keyserver.OpListTrustedCAs, keyserver.OpRemoveTrustedCA),
			Faults:     codes(fault.NotTrusted, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
	}
}

func trustedServerRoutes() []Route {
	return []Route{
		endpoint[schema.TrustedServersQuery, schema.TrustedServerList](Route{
			Name: "listTrustedServers", Method: http.MethodGet, Path: "/api/trusted-servers", Session: true,
			Summary:    "Lists the registered peers, or finds them by server name.",
			Operations: grants(keyserver.OpListTrustedServers), Faults: codes(fault.NotFound),
		}),
		endpoint[schema.AddTrustedServerRequest, schema.TrustedServerSaved](Route{
			Name: "addTrustedServer", Method: http.MethodPost, Path: "/api/trusted-servers", Makes: keyserver.ChangeTrustedServer, Session: true, BodyLimit: 2 * SmallBody,
			Summary:    "Registers a peer from its trust blob and verifies it with a second read. ACL rows that its last removal purged become valid again. With replace, an extension, it replaces the record of a registered peer.",
			Operations: grants(keyserver.OpListTrustedServers, keyserver.OpAddTrustedServer),
			Faults:     codes(fault.AlreadyExists, fault.NotPersisted, fault.InvalidArgument),
		}),
		endpoint[schema.UpdateTrustedServerRequest, schema.TrustedServerUpdated](Route{
			Name: "updateTrustedServer", Method: http.MethodPut, Path: "/api/trusted-servers/{systemId}", Session: true,
			Summary:    "Changes the friendly name, description or witness setting of a peer, and verifies the changes.",
			Operations: grants(keyserver.OpListTrustedServers, keyserver.OpUpdateTrustedServer),
			Faults:     codes(fault.NotFound, fault.NotPersisted, fault.InvalidArgument),
		}),
		endpoint[schema.BySystemID, schema.TrustedServerGone](Route{
			Name: "removeTrustedServer", Method: http.MethodDelete, Path: "/api/trusted-servers/{systemId}", Session: true,
			Summary:    "Removes a peer with its transport principal, purges the ACL rows of its principals, and verifies its absence.",
			Operations: grants(keyserver.OpListTrustedServers, keyserver.OpRemoveTrustedServer),
			Faults:     codes(fault.NotFound, fault.NotRemoved, fault.InvalidArgument),
		}),
		endpoint[Nothing, schema.TrustInfo](Route{
			Name: "getLocalTrustInfo", Method: http.MethodGet, Path: "/api/trust/local-info", Extension: true, Session: true,
			Summary:    "Returns the trust blob of this server and its fields.",
			Operations: grants(keyserver.OpReadTrustInfo),
		}),
	}
}

func authorityRoutes() []Route {
	change := grants(keyserver.OpReadAuthority, keyserver.OpChangeAuthority)
	return []Route{
		endpoint[Nothing, schema.AuthorityList](Route{
			Name: "listAuthorities", Method: http.MethodGet, Path: "/api/authority", Extension: true, Session: true,
			Summary:    "Lists the internal CAs of this key server, one of which issues certificates.",
			Operations: grants(keyserver.OpReadAuthority),
		}),
		endpoint[Nothing, schema.AuthorityChanged](Route{
			Name: "prepareAuthority", Method: http.MethodPost, Path: "/api/authority/prepare", Extension: true, Session: true,
			Summary:    "Creates the next internal CA and verifies it. It is trusted and published, but issues nothing yet.",
			Operations: change, Faults: codes(fault.AuthorityState, fault.NotSaved, fault.ReadbackFailed),
		}),
		endpoint[schema.ActivateAuthorityRequest, schema.AuthorityChanged](Route{
			Name: "activateAuthority", Method: http.MethodPost, Path: "/api/authority/activate", Extension: true, Session: true,
			Summary:    "Makes the prepared CA issue certificates, starting with a new server certificate, and verifies the state. The previous CA stays trusted until it is retired.",
			Operations: change, Faults: codes(fault.AuthorityState, fault.NotSaved, fault.ReadbackFailed),
		}),
		endpoint[schema.RetireAuthorityRequest, schema.AuthorityGone](Route{
			Name: "retireAuthority", Method: http.MethodPost, Path: "/api/authority/retire", Extension: true, Session: true,
			Summary:    "Stops trusting a CA that does not issue, destroys its key, and verifies its absence. Its certificates are no longer accepted.",
			Operations: change, Faults: codes(fault.NotFound, fault.AuthorityState, fault.NotRemoved, fault.ReadbackFailed),
		}),
	}
}

func principalTrustRoutes() []Route {
	return []Route{
		endpoint[schema.PrincipalTrustsQuery, schema.PrincipalTrustList](Route{
			Name: "listPrincipalTrusts", Method: http.MethodGet, Path: "/api/principal-trusts", Extension: true, Session: true,
			Summary:    "Lists the principal trusts, which state what peers learn of principals.",
			Operations: grants(keyserver.OpListPrincipalTrusts), Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.CreatePrincipalTrustRequest, schema.PrincipalTrustSaved](Route{
			Name: "createPrincipalTrust", Method: http.MethodPost, Path: "/api/principal-trusts", Makes: keyserver.ChangePrincipalTrust, Extension: true, Session: true,
			Summary:    "Creates a principal trust for a registered peer and verifies it.",
			Operations: grants(keyserver.OpListPrincipalTrusts, keyserver.OpCreatePrincipalTrust),
			Faults:     codes(fault.NotFound, fault.AlreadyExists, fault.NotPersisted, fault.InvalidArgument),
		}),
		endpoint[schema.UpdatePrincipalTrustRequest, schema.PrincipalTrustSaved](Route{
			Name: "updatePrincipalTrust", Method: http.MethodPut, Path: "/api/principal-trusts/{id}", Session: true,
			Summary:    "Changes the flag of a principal trust and verifies it.",
			Operations: grants(keyserver.OpListPrincipalTrusts, keyserver.OpUpdatePrincipalTrust),
			Faults:     codes(fault.NotFound, fault.NotPersisted, fault.InvalidArgument),
		}),
		endpoint[schema.ByID, schema.PrincipalTrustGone](Route{
			Name: "deletePrincipalTrust", Method: http.MethodDelete, Path: "/api/principal-trusts/{id}", Names: keyserver.TrustSubject, Extension: true, Session: true,
			Summary:    "Deletes a principal trust and verifies its absence.",
			Operations: grants(keyserver.OpListPrincipalTrusts, keyserver.OpDeletePrincipalTrust),
			Faults:     codes(fault.NotFound, fault.NotRemoved, fault.InvalidArgument),
		}),
	}
}

func ownerRoutes() []Route {
	change := grants(keyserver.OpReadOwners, keyserver.OpSetOwner)
	return []Route{
		endpoint[schema.OwnerQuery, schema.OwnerList](Route{
			Name: "listOwners", Method: http.MethodGet, Path: "/api/owners", Extension: true, Session: true,
			Summary:    "Lists the owner marks of objects of one kind in pages, sorted by id.",
			Operations: grants(keyserver.OpReadOwners),
		}),
		endpoint[schema.OwnedObject, schema.OwnerMark](Route{
			Name: "getOwner", Method: http.MethodGet, Path: "/api/owners/{kind}/{id}", Extension: true, Session: true,
			Summary:    "Returns the owner mark of an object.",
			Operations: grants(keyserver.OpReadOwners), Faults: codes(fault.NotFound),
		}),
		endpoint[schema.SetOwnerRequest, schema.OwnerSaved](Route{
			Name: "setOwner", Method: http.MethodPut, Path: "/api/owners/{kind}/{id}", Extension: true, Session: true,
			Summary:    "Marks an object that has no mark or the mark of the owner in expect, and verifies the mark. It succeeds if the owner has the mark already.",
			Operations: change, Faults: codes(fault.NotFound, fault.Owned, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
			VerdictCodes: codes(fault.Owned),
		}),
		endpoint[schema.ReleaseOwnerRequest, schema.OwnerReleased](Route{
			Name: "releaseOwner", Method: http.MethodDelete, Path: "/api/owners/{kind}/{id}", Extension: true, Session: true,
			Summary:    "Removes the mark of the owner in expect and verifies its absence. The object stays.",
			Operations: change, Faults: codes(fault.NotFound, fault.Owned, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
			VerdictCodes: codes(fault.Owned),
		}),
	}
}

func aclTemplateRoutes() []Route {
	change := grants(keyserver.OpReadACLTemplateMembers, keyserver.OpChangeACLTemplateMembers)
	return []Route{
		endpoint[schema.ACLTemplateQuery, schema.ACLTemplateList](Route{
			Name: "listAclTemplates", Method: http.MethodGet, Path: "/api/acl-templates", Extension: true, Session: true,
			Summary:    "Lists the ACL templates.",
			Operations: grants(keyserver.OpListACLTemplates),
		}),
		endpoint[schema.ACLTemplateRequest, schema.ACLTemplateSaved](Route{
			Name: "createAclTemplate", Method: http.MethodPost, Path: "/api/acl-templates", Makes: keyserver.ChangeACLTemplate, Extension: true, Session: true,
			Summary:    "Creates an ACL template and verifies it. The caller becomes its first member, with OWNER.",
			Operations: grants(keyserver.OpListACLTemplates, keyserver.OpCreateACLTemplate),
			Faults:     codes(fault.AlreadyExists, fault.NotSaved, fault.InvalidArgument),
		}),
		endpoint[schema.RenameACLTemplateRequest, schema.ACLTemplateSaved](Route{
			Name: "renameAclTemplate", Method: http.MethodPut, Path: "/api/acl-templates/{id}", Session: true,
			Summary:    "Renames an ACL template and verifies the name. The caller must be a member with WRITE.",
			Operations: grants(keyserver.OpListACLTemplates, keyserver.OpUpdateACLTemplate),
			Faults:     codes(fault.NotFound, fault.NotWritable, fault.AlreadyExists, fault.NotSaved),
		}),
		endpoint[schema.ByID, schema.ACLTemplateGone](Route{
			Name: "deleteAclTemplate", Method: http.MethodDelete, Path: "/api/acl-templates/{id}", Names: keyserver.TemplateSubject, Extension: true, Session: true,
			Summary:    "Deletes an ACL template that no templated directory uses, and verifies its absence. Keys keep their ACL entries from it.",
			Operations: grants(keyserver.OpListACLTemplates, keyserver.OpDeleteACLTemplate),
			Faults:     codes(fault.NotFound, fault.InUse, fault.NotRemoved),
		}),
		endpoint[schema.ByID, schema.TemplateMemberList](Route{
			Name: "listAclTemplateMembers", Method: http.MethodGet, Path: "/api/acl-templates/{id}/members", Names: keyserver.TemplateSubject, Extension: true, Session: true,
			Summary:    "Lists the members of an ACL template.",
			Operations: grants(keyserver.OpReadACLTemplateMembers), Faults: codes(fault.NotFound),
		}),
		endpoint[schema.SetACLTemplateMemberRequest, schema.TemplateMemberSaved](Route{
			Name: "setAclTemplateMember", Method: http.MethodPost, Path: "/api/acl-templates/{id}/members", Extension: true, Session: true,
			Summary:    "Makes a principal a member with exactly these rights and limits, and verifies them. It replaces an existing membership.",
			Operations: change,
			Faults:     codes(fault.NotFound, fault.NotWritable, fault.LastWriter, fault.NotSaved, fault.InvalidArgument),
		}),
		endpoint[schema.RemoveACLTemplateMemberRequest, schema.TemplateMemberGone](Route{
			Name: "removeAclTemplateMember", Method: http.MethodDelete, Path: "/api/acl-templates/{id}/members/{systemId}/{principalId}", Extension: true, Session: true,
			Summary:    "Removes a member and verifies its absence. The last member that has WRITE without an end time cannot be removed.",
			Operations: change,
			Faults:     codes(fault.NotFound, fault.NotWritable, fault.LastWriter, fault.NotRemoved),
		}),
	}
}

func templatedDirectoryRoutes() []Route {
	return []Route{
		endpoint[schema.TemplatedDirectoryQuery, schema.TemplatedDirectoryList](Route{
			Name: "listTemplatedDirectories", Method: http.MethodGet, Path: "/api/templated-directories", Session: true,
			Summary:    "Lists the templated directories, or finds them by path or by ACL template.",
			Operations: grants(keyserver.OpListTemplatedDirectories),
		}),
		endpoint[schema.CreateTemplatedDirectoryRequest, schema.TemplatedDirectorySaved](Route{
			Name: "createTemplatedDirectory", Method: http.MethodPost, Path: "/api/templated-directories", Extension: true, Session: true,
			Summary:    "Applies an ACL template to keys created under a path, and verifies all fields.",
			Operations: grants(keyserver.OpListTemplatedDirectories, keyserver.OpCreateTemplatedDirectory),
			Faults:     codes(fault.AlreadyExists, fault.NotSaved, fault.InvalidArgument),
		}),
		endpoint[schema.ByID, schema.TemplatedDirectoryGone](Route{
			Name: "deleteTemplatedDirectory", Method: http.MethodDelete, Path: "/api/templated-directories/{id}", Names: keyserver.DirectorySubject, Extension: true, Session: true,
			Summary:    "Deletes a templated directory and verifies its absence. Keys created under it keep their ACL entries.",
			Operations: grants(keyserver.OpListTemplatedDirectories, keyserver.OpDeleteTemplatedDirectory),
			Faults:     codes(fault.NotFound, fault.NotRemoved),
		}),
	}
}

func certificateRoutes() []Route {
	find := grants(keyserver.OpFindCertificates)
	unsaved := codes(fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument)
	return []Route{
		endpoint[schema.IssueCertificateRequest, schema.CertificateIssued](Route{
			Name: "issueCertificate", Method: http.MethodPost, Path: "/api/certificates", Extension: true, Session: true, BodyLimit: 2 * SmallBody,
			Summary:    "Issues a client certificate from a PKCS#10 request, saves the request, and verifies both. Issuing does not enrol the certificate.",
			Operations: append(grants(keyserver.OpIssueCertificate), find...), Faults: unsaved,
		}),
		endpoint[schema.RenewCertificateRequest, schema.CertificateRenewed](Route{
			Name: "renewCertificate", Method: http.MethodPost, Path: "/api/certificates/renew", Session: true, BodyLimit: 2 * SmallBody,
			Summary:    "Issues a certificate again from its saved request, marks the old one expired, and verifies both.",
			Operations: append(grants(keyserver.OpRenewCertificate), find...), Faults: append(codes(fault.NotFound, fault.NoSavedRequest), unsaved...),
		}),
		endpoint[schema.EnrollCertificatesRequest, schema.CertificatesEnrolled](Route{
			Name: "enrollCertificates", Many: true, Method: http.MethodPost, Path: "/api/certificates/enroll", Makes: keyserver.ChangePrincipal, Extension: true, Session: true, BodyLimit: 16 * SmallBody,
			Summary:    "Enrols all of the certificates as transport principals or none, and verifies each.",
			Operations: append(grants(keyserver.OpEnrollCertificate, keyserver.OpReadPrincipal), find...), Faults: append(codes(fault.Escalation, fault.DutiesConflict, fault.AlreadyExists), unsaved...),
		}),
		endpoint[schema.CertificatesRequest, schema.CertificatesFound](Route{
			Name: "findCertificatesBySubject", Method: http.MethodPost, Path: BySubjectPath, Extension: true, Session: true,
			Summary:    "Finds certificates by subject. % matches any text, every other character only itself.",
			Operations: find, Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.CertificatesRequest, schema.TransportCertificates](Route{
			Name: "findCertificatesByTransportPrincipal", Method: http.MethodPost, Path: "/api/certificates/by-transport-principal", Session: true,
			Summary:    "Finds the certificates of a transport principal by their exact subject.",
			Operations: find, Faults: codes(fault.InvalidArgument),
		}),
		endpoint[schema.ResetTransportPrincipalRequest, schema.TransportPrincipalReset](Route{
			Name: "resetTransportPrincipal", Method: http.MethodPost, Path: "/api/transport-principals/reset", Extension: true, Session: true,
			Summary:    "Removes the certificates of a transport principal, ends its sessions, and verifies that no certificate remains.",
			Operations: append(grants(keyserver.OpResetTransportPrincipal, keyserver.OpReadPrincipal), find...),
			Faults:     codes(fault.NotFound, fault.BuiltInPrincipal, fault.NotRemoved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
	}
}

func revocationRoutes() []Route {
	return []Route{
		endpoint[Nothing, schema.RevocationIssuerList](Route{
			Name: "listRevocationIssuers", Method: http.MethodGet, Path: "/api/revocation/issuers", Extension: true, Session: true,
			Summary:    "Lists the trusted CAs with their revocation policies and the state of their CRLs.",
			Operations: grants(keyserver.OpListRevocationIssuers),
		}),
		endpoint[schema.ByDigest, schema.RevocationPolicy](Route{
			Name: "getRevocationPolicy", Method: http.MethodGet, Path: "/api/revocation/issuers/{digest}/policy", Extension: true, Session: true,
			Summary:    "Returns the revocation policy of a trusted CA.",
			Operations: grants(keyserver.OpReadRevocationPolicy), Faults: codes(fault.NotFound),
		}),
		endpoint[schema.SetRevocationPolicyRequest, schema.RevocationPolicySaved](Route{
			Name: "setRevocationPolicy", Method: http.MethodPut, Path: "/api/revocation/issuers/{digest}/policy", Extension: true, Session: true,
			Summary:    "Sets the revocation policy of a trusted CA and verifies it.",
			Operations: grants(keyserver.OpReadRevocationPolicy, keyserver.OpSetRevocationPolicy),
			Faults:     codes(fault.NotFound, fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
		endpoint[schema.ImportCRLRequest, schema.CRLImported](Route{
			Name: "importCrl", Method: http.MethodPost, Path: "/api/revocation/crls", Extension: true, Session: true, BodyLimit: crlBodyLimit, Timeout: time.Minute,
			Summary:    "Imports a CRL that a trusted CA signed, if it is not older than the stored one, and verifies it.",
			Operations: grants(keyserver.OpListRevocationIssuers, keyserver.OpImportCRL),
			Faults:     codes(fault.NotSaved, fault.ReadbackFailed, fault.InvalidArgument),
		}),
	}
}

// BySubjectPath is the path of the route that accepts a wildcard in the subject.
const BySubjectPath = "/api/certificates/by-subject"

// crlBodyLimit is enough for the longest revocation list in base64 or PEM.
const crlBodyLimit = 6 << 20
