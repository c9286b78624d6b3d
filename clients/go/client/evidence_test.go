package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// claims has responses by their type. They report success, but do not show that the write was verified. The test also
// tries an empty object for each type.
var claims = map[string][]string{
	"ACLResponse":             {`{"verified":true,"requestedRights":1,"entry":null}`, `{"entry":{},"acl":{}}`},
	"KeyStateSaved":           {`{"saved":true,"ttag":"AAAAAQAAAAAAAAPp"}`, `{"saved":true,"state":"disabled"}`, `{"ttag":"AAAAAQAAAAAAAAPp","state":"disabled"}`},
	"KeyRotated":              {`{"saved":true}`, `{"ttag":"AAAAAQAAAAAAAAPp","generation":2}`},
	"KeyRotationSaved":        {`{"saved":true}`, `{"ttag":"AAAAAQAAAAAAAAPp"}`},
	"ACLTemplateSaved":        {`{"saved":true,"template":null}`, `{"template":{}}`},
	"ACLTemplateGone":         {`{"template":{}}`},
	"TemplateMemberSaved":     {`{"saved":true,"member":null,"members":[{}]}`, `{"member":{}}`},
	"TemplateMemberGone":      {`{"members":[]}`},
	"TemplatedDirectorySaved": {`{"saved":true,"directory":null}`, `{"directory":{}}`},
	"TemplatedDirectoryGone":  {`{"directory":{}}`},
	"RoleSaved":               {`{"saved":true,"role":null}`, `{"role":{}}`},
	"ApprovalPolicySaved":     {`{"rules":[]}`},
	"DataKeyRotated":          {`{"saved":true,"dataKeyId":"0000000000000001","dataKeys":[]}`, `{"saved":true,"dataKeyId":"0000000000000001","dataKeys":[{"id":"0000000000000001","state":"retired"}]}`, `{"dataKeyId":"0000000000000001","dataKeys":[{"id":"0000000000000001","state":"active"}]}`},
	"RoleGone":                {`{"role":{}}`},
	"PrincipalSaved":          {`{"saved":true,"principal":null}`, `{"principal":{}}`},
	"PrincipalFlagsSaved":     {`{"after":{}}`},
	"PrincipalRolesSaved":     {`{"principal":{}}`},
	"PasswordSaved":           {`{"sessionsEnded":1}`},
	"PrincipalGone":           {`{"principal":{}}`, `{"sessionsEnded":1,"entriesClosed":1}`},
	"DelegateSaved":           {`{"delegateId":"0000000000000001","delegation":true}`},
	"DelegateGone":            {`{"delegateId":"0000000000000001"}`},
	"GroupMemberSaved":        {`{"member":{}}`},
	"GroupMemberGone":         {`{"member":{}}`},
	"TrustedCAAdded":          {`{"saved":true,"matchedBy":"certificate-body"}`, `{"saved":true,"trustedCA":{}}`, `{"trustedCA":{"certificateId":"AAAAAAAAAAE="}}`},
	"TrustedCARemoved":        {`{"trustedCA":{}}`},
	"TrustedServerSaved":      {`{"saved":true,"systemId":7,"trustedServers":[]}`, `{"saved":true,"systemId":7,"trustedServers":[{"systemId":8},{"systemId":null}]}`, `{"systemId":7,"trustedServers":[{"systemId":7}]}`},
	"TrustedServerUpdated":    {`{"saved":true,"trustedServer":null}`, `{"saved":true,"trustedServer":{}}`, `{"trustedServer":{"systemId":7}}`},
	"TrustedServerGone":       {`{"removed":null}`},
	"AuthorityChanged":        {`{"saved":true,"certificateId":"AAAAAAAAAAE=","authorities":[]}`, `{"certificateId":"AAAAAAAAAAE=","authorities":[{"certificateId":"AAAAAAAAAAE="}]}`},
	"AuthorityGone":           {`{"authorities":[]}`},
	"PrincipalTrustSaved":     {`{"saved":true,"principalTrust":null}`, `{"principalTrust":{}}`},
	"PrincipalTrustGone":      {`{"principalTrust":{}}`},
	"OwnerSaved":              {`{"saved":true,"owner":""}`, `{"owner":"somebody"}`},
	"OwnerReleased":           {`{"owner":"somebody"}`},
	"CertificateRenewed":      {`{"chain":"","certificateId":"0000000000000001"}`},
	"CertificateIssued":       {`{"saved":true}`, `{"saved":true,"chain":"AAAA"}`, `{"saved":true,"certificate":"AAAA"}`, `{"chain":"AAAA","certificate":"AAAA"}`},
	"CertificatesEnrolled":    {`{"saved":true,"principals":[]}`, `{"principals":[{}]}`},
	"TransportPrincipalReset": {`{"principal":{}}`},
	"RevocationPolicySaved":   {`{"mode":"off"}`},
	"CRLImported":             {`{"saved":true,"issuers":[]}`, `{"issuers":[{}]}`},
}

// If a verified write reports success without evidence, each call returns an error.
func TestSuccessWithoutEvidenceIsNotBelieved(t *testing.T) {
	var answer string
	s := newStub(t)
	s.on("/", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, answer) })
	c := s.client(t)
	untried := map[string]bool{}
	for name := range claims {
		untried[name] = true
	}
	v := reflect.ValueOf(c)
	for i := range v.NumMethod() {
		method, m := v.Type().Method(i).Name, v.Method(i)
		if m.Type().NumOut() != 2 || m.Type().Out(0).Kind() != reflect.Struct {
			continue
		}
		if _, verdict := m.Type().Out(0).FieldByName("Verdict"); !verdict {
			continue
		}
		name := m.Type().Out(0).Name()
		delete(untried, name)
		if claims[name] == nil {
			t.Errorf("%s: no lies are known about %s", method, name)
		}
		for _, answer = range append([]string{"{}"}, claims[name]...) {
			err := call(t.Context(), m)
			var refused *client.Error
			if !errors.As(err, &refused) || refused.Code != "NOT_VERIFIED" || refused.Status != http.StatusOK || refused.Retryable ||
				!strings.HasPrefix(refused.Detail, "the service reports success") {
				t.Errorf("%s believes %s: %v", method, answer, err)
			}
		}
	}
	for name := range untried {
		t.Errorf("no method returns %s", name)
	}
}

func call(ctx context.Context, method reflect.Value) error {
	args := []reflect.Value{reflect.ValueOf(ctx)}
	if method.Type().NumIn() > 1 {
		in := reflect.New(method.Type().In(1)).Elem()
		if digest := in.FieldByName("Digest"); digest.IsValid() {
			digest.SetString(strings.Repeat("AB", 32))
		}
		if link := in.FieldByName("TTag"); link.IsValid() {
			link.Set(reflect.ValueOf(schema.HiddenLink("k")))
		}
		if kind := in.FieldByName("Kind"); kind.IsValid() {
			kind.SetString("role")
		}
		args = append(args, in)
	}
	err, _ := method.Call(args)[1].Interface().(error)
	return err
}

// A response with another object, or with an earlier state of the object, belongs to another request. A proxy or a
// cache may have repeated that response.
func TestAnAnswerToAnotherRequestIsNotBelieved(t *testing.T) {
	const role = `{"saved":true,"role":{"id":"0000000000000a01","name":"one","operations":["0000000000000101","0000000000000102"]}}`
	const template = `{"saved":true,"template":{"id":"0000000000000b01","name":"one"}}`
	const member = `{"saved":true,"id":"0000000000000b01","member":{"systemId":2,"principalId":"7","rights":3}}`
	id, templateID := schema.HexID{6: 0xa, 7: 1}, schema.HexID{6: 0xb, 7: 1}
	operations, fewer := []schema.HexID{{6: 1, 7: 2}, {6: 1, 7: 1}}, []schema.HexID{{6: 1, 7: 2}}
	set := func(id schema.HexID, system schema.SystemID, principal schema.DecimalID, rights schema.Rights) schema.SetACLTemplateMemberRequest {
		return schema.SetACLTemplateMemberRequest{ID: id, TemplateMemberRequest: schema.TemplateMemberRequest{SystemID: system, PrincipalID: principal, Rights: rights}}
	}
	seven := schema.DecimalID{7: 7}
	for name, one := range map[string]struct {
		answer string
		ask    func(ctx context.Context, c *client.Client) error
		its    bool
	}{
		"RoleMade":            {role, createRole("one", operations), true},
		"RoleMadeTrimmed":     {role, createRole(" one ", operations), true},
		"AnotherRoleMade":     {role, createRole("two", operations), false},
		"OtherOperations":     {role, createRole("one", fewer), false},
		"RoleChanged":         {role, updateRole(schema.UpdateRoleRequest{ID: id, Operations: operations}), true},
		"RoleRenamed":         {role, updateRole(schema.UpdateRoleRequest{ID: id, Name: new("one")}), true},
		"RoleRenamedTrimmed":  {role, updateRole(schema.UpdateRoleRequest{ID: id, Name: new("one ")}), true},
		"AnotherRoleChanged":  {role, updateRole(schema.UpdateRoleRequest{ID: schema.HexID{1}, Operations: operations}), false},
		"RoleAsItWas":         {role, updateRole(schema.UpdateRoleRequest{ID: id, Operations: fewer}), false},
		"RoleEmptied":         {role, updateRole(schema.UpdateRoleRequest{ID: id, Operations: []schema.HexID{}}), false},
		"RoleOfTheNameBefore": {role, updateRole(schema.UpdateRoleRequest{ID: id, Name: new("two")}), false},
		"TemplateMade":        {template, createTemplate(" one "), true},
		"AnotherTemplateMade": {template, createTemplate("two"), false},
		"TemplateRenamed":     {template, renameTemplate(templateID, "one"), true},
		"TemplateOfTheName":   {template, renameTemplate(templateID, "two"), false},
		"AnotherTemplate":     {template, renameTemplate(id, "one"), false},
		"MemberSet":           {member, setMember(set(templateID, 2, seven, 1)), true},
		"MemberOfAnother":     {member, setMember(set(id, 2, seven, 1)), false},
		"AnotherMember":       {member, setMember(set(templateID, 2, schema.DecimalID{7: 8}, 1)), false},
		"MemberOfAnotherHome": {member, setMember(set(templateID, 3, seven, 1)), false},
		"MemberWithTooFew":    {member, setMember(set(templateID, 2, seven, 4)), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.on("/", func(w http.ResponseWriter, _ *http.Request, _ int64) { _, _ = io.WriteString(w, one.answer) })
			err := one.ask(t.Context(), s.client(t))
			var refused *client.Error
			switch {
			case one.its && err != nil:
				t.Errorf("it is not believed: %v", err)
			case !one.its && (!errors.As(err, &refused) || refused.Code != "NOT_VERIFIED" || refused.Retryable):
				t.Errorf("it is believed: %v", err)
			}
		})
	}
}

func createRole(name string, operations []schema.HexID) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		_, err := c.CreateRole(ctx, schema.CreateRoleRequest{Name: name, Operations: operations})
		return err
	}
}

func updateRole(in schema.UpdateRoleRequest) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error { _, err := c.UpdateRole(ctx, in); return err }
}

func createTemplate(name string) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		_, err := c.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: name})
		return err
	}
}

func renameTemplate(id schema.HexID, name string) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		_, err := c.RenameACLTemplate(ctx, schema.RenameACLTemplateRequest{ID: id, ACLTemplateRequest: schema.ACLTemplateRequest{Name: name}})
		return err
	}
}

func setMember(in schema.SetACLTemplateMemberRequest) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		_, err := c.SetACLTemplateMember(ctx, in)
		return err
	}
}

// A response with evidence is accepted.
func TestSuccessWithEvidenceIsBelieved(t *testing.T) {
	for name, answer := range map[string]interface{ MissingEvidence() string }{
		"Read of a list": schema.ACLResponse{Verified: true},
		"Peer":           schema.TrustedServerSaved{Saved: true, SystemID: 7, TrustedServers: []schema.TrustedServer{{}, {SystemID: new(schema.SystemID(7))}}},
		"Renewed":        schema.CertificateRenewed{Chain: schema.Base64{1}},
		"Gone":           schema.RoleGone{Gone: true},
	} {
		if missing := answer.MissingEvidence(); missing != "" {
			t.Errorf("%s: %s", name, missing)
		}
	}
}
