package operations

import (
	"context"
	"reflect"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Handler executes the requests of a route. It has the request and response types of the route.
type Handler struct {
	Request, Response reflect.Type
	// Run calls the operation with the request that in points to. It always returns a pointer to the response, because
	// the response of a failed write describes the failure.
	Run func(ctx context.Context, ops *verified.Service, by keyserver.Caller, in any) (any, error)
}

// Handlers maps the names of routes to their handlers.
var Handlers = map[string]Handler{
	"getDecision":                          handler(getDecision),
	"getDecisions":                         handler(getDecisions),
	"computeMacs":                          handler(macBatch),
	"verifyMacs":                           handler(verifyMACBatch),
	"encrypt":                              handler(encrypt),
	"decrypt":                              handler(decrypt),
	"getExplanation":                       handler(getExplanation),
	"listCapable":                          handler(listCapable),
	"getVersion":                           handler(version),
	"getConfiguration":                     handler(getConfiguration),
	"getCustody":                           handler(getCustody),
	"rotateDataKey":                        handler(rotateDataKey),
	"mintKey":                              handler(mintKey),
	"getKey":                               handler(getKey),
	"authorizeKey":                         handler(authorizeKey),
	"exportKey":                            handler(exportKey),
	"listKeys":                             handler(listKeys),
	"disableKey":                           handler(disableKey),
	"enableKey":                            handler(enableKey),
	"destroyKey":                           handler(destroyKey),
	"restoreKey":                           handler(restoreKey),
	"rotateKey":                            handler(rotateKey),
	"setKeyRotation":                       handler(setKeyRotation),
	"grantAcl":                             handler(grantACL),
	"updateAcl":                            handler(amendACL),
	"revokeAcl":                            handler(revokeACL),
	"getAcl":                               handler(getACL),
	"listPrincipals":                       handler(listPrincipals),
	"lookUpPrincipals":                     handler(lookupPrincipals),
	"createPasswordPrincipal":              handler(createPasswordPrincipal),
	"createLdapPrincipal":                  handler(createLDAPPrincipal),
	"createXauthPrincipal":                 handler(createXAuthPrincipal),
	"getPrincipal":                         handler(getPrincipal),
	"updatePrincipalFlags":                 handler(updatePrincipalFlags),
	"addDelegate":                          handler(addDelegate),
	"removeDelegate":                       handler(removeDelegate),
	"updatePrincipalRoles":                 handler(updatePrincipalRoles),
	"deletePrincipal":                      handler(deletePrincipal),
	"createGroup":                          handler(createGroup),
	"listGroupMembers":                     handler(listGroupMembers),
	"addGroupMember":                       handler(addGroupMember),
	"removeGroupMember":                    handler(removeGroupMember),
	"listRoles":                            handler(listRoles),
	"createRole":                           handler(createRole),
	"updateRole":                           handler(updateRole),
	"deleteRole":                           handler(deleteRole),
	"listOperations":                       handler(listOperations),
	"getAuditCheckpoint":                   handler(auditCheckpoint),
	"getAuditKey":                          handler(auditKey),
	"getAuditReceipt":                      handler(auditReceipt),
	"getAuditHashes":                       handler(auditHashes),
	"getAuditEntries":                      handler(auditEntries),
	"getWitness":                           handler(getWitness),
	"listTrustedCas":                       handler(listTrustedCAs),
	"addTrustedCa":                         handler(addTrustedCA),
	"removeTrustedCa":                      handler(removeTrustedCA),
	"listTrustedServers":                   handler(listTrustedServers),
	"addTrustedServer":                     handler(addTrustedServer),
	"updateTrustedServer":                  handler(updateTrustedServer),
	"removeTrustedServer":                  handler(removeTrustedServer),
	"getLocalTrustInfo":                    handler(localTrustInfo),
	"listAuthorities":                      handler(listAuthorities),
	"prepareAuthority":                     handler(prepareAuthority),
	"activateAuthority":                    handler(activateAuthority),
	"retireAuthority":                      handler(retireAuthority),
	"listPrincipalTrusts":                  handler(listPrincipalTrusts),
	"createPrincipalTrust":                 handler(createPrincipalTrust),
	"updatePrincipalTrust":                 handler(updatePrincipalTrust),
	"deletePrincipalTrust":                 handler(deletePrincipalTrust),
	"listOwners":                           handler(listOwners),
	"getOwner":                             handler(getOwner),
	"setOwner":                             handler(setOwner),
	"releaseOwner":                         handler(releaseOwner),
	"listAclTemplates":                     handler(listACLTemplates),
	"createAclTemplate":                    handler(createACLTemplate),
	"renameAclTemplate":                    handler(renameACLTemplate),
	"deleteAclTemplate":                    handler(deleteACLTemplate),
	"listAclTemplateMembers":               handler(listTemplateMembers),
	"setAclTemplateMember":                 handler(putTemplateMember),
	"removeAclTemplateMember":              handler(removeTemplateMember),
	"listTemplatedDirectories":             handler(listTemplatedDirectories),
	"createTemplatedDirectory":             handler(createTemplatedDirectory),
	"deleteTemplatedDirectory":             handler(deleteTemplatedDirectory),
	"issueCertificate":                     handler(issueCertificate),
	"renewCertificate":                     handler(renewCertificate),
	"enrollCertificates":                   handler(enrollCertificates),
	"findCertificatesBySubject":            handler(certificatesBySubject),
	"findCertificatesByTransportPrincipal": handler(certificatesByTransportPrincipal),
	"resetTransportPrincipal":              handler(resetTransportPrincipal),
	"listRevocationIssuers":                handler(listRevocationIssuers),
	"getRevocationPolicy":                  handler(getRevocationPolicy),
	"setRevocationPolicy":                  handler(setRevocationPolicy),
	"importCrl":                            handler(importCRL),
}

func handler[In, Out any](work func(context.Context, *verified.Service, keyserver.Caller, In) (Out, error)) Handler {
	return Handler{
		Request: reflect.TypeFor[In](), Response: reflect.TypeFor[Out](),
		Run: func(ctx context.Context, ops *verified.Service, by keyserver.Caller, in any) (any, error) {
			request := in.(*In) //nolint:errcheck // it points to a Request
			out, err := work(ctx, ops, by, *request)
			return &out, err
		},
	}
}
