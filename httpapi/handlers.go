package httpapi

import (
	"fmt"
	"reflect"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/operations"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
)

// handlers maps the name of each route in the table of package routes to its handler.
var handlers = withOperations(map[string]handler{
	"getOpenApiDocument": {reflect.TypeFor[nothing](), nil, openAPI},
	"askApproval":        {reflect.TypeFor[schema.ApprovalRequest](), reflect.TypeFor[schema.Approval](), askApproval},
	"executeApproval":    {reflect.TypeFor[schema.ByID](), nil, executeApproval},
	"createBackup":       download(createBackup),

	"computeMac":             stream[schema.MACRequest](mac),
	"verifyMac":              stream[schema.VerifyMACRequest](verifyMAC),
	"getHealth":              handle(health),
	"getReadiness":           handle(ready),
	"login":                  handle(login),
	"getCurrentSession":      handle(currentSession),
	"endCurrentSession":      handle(endSession),
	"listSessions":           handle(listSessions),
	"endSession":             handle(endOneSession),
	"endSessionsOfPrincipal": handle(endSessionsOf),
	"getApprovalPolicy":      handle(getApprovalPolicy),
	"setApprovalPolicy":      handle(setApprovalPolicy),
	"listApprovals":          handle(listApprovals),
	"getApproval":            handle(getApproval),
	"approve":                handle(approve),
	"reject":                 handle(reject),
	"withdrawApproval":       handle(withdrawApproval),
	"computeHmac":            stream[schema.HMACRequest](hmac),
	"setPassword":            handle(setPassword),
	"listAuditEntries":       handle(readAudit),
	"listChanges":            handle(readChanges),
})

func withOperations(all map[string]handler) map[string]handler {
	for name, o := range operations.Handlers {
		all[name] = operate(o)
	}
	return all
}

// checkHandlers fails if a route has no handler, if a handler has no route, or if their types differ.
func checkHandlers(all []routes.Route) error {
	for _, r := range all {
		h, found := handlers[r.Name]
		if !found || h.request != r.Request || h.response != r.Response {
			return fmt.Errorf("httpapi: %s has no handler for %v that returns %v", r.Name, r.Request, r.Response)
		}
	}
	if len(all) != len(handlers) {
		return fmt.Errorf("httpapi: %d handlers for %d routes", len(handlers), len(all))
	}
	return nil
}
