package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const aclTemplates = "/api/acl-templates"

// ACLTemplates lists the ACL templates.
func (c *Client) ACLTemplates(ctx context.Context) (schema.ACLTemplateList, error) {
	return get[schema.ACLTemplateList](ctx, c, aclTemplates)
}

// CreateACLTemplate makes a template whose first member, with OWNER, is the
// session's principal. NOT_SAVED, with the answer filled, where it does not
// read back.
func (c *Client) CreateACLTemplate(ctx context.Context, name string) (schema.ACLTemplateSaved, error) {
	return send[schema.ACLTemplateSaved](ctx, c, call{
		method: http.MethodPost, path: aclTemplates, nameless: true, body: schema.ACLTemplateRequest{Name: name},
	})
}

// RenameACLTemplate renames a template. NOT_WRITABLE where the session's
// principal is no member that holds WRITE; NOT_SAVED, with the answer filled,
// where the name does not read back.
func (c *Client) RenameACLTemplate(ctx context.Context, id, name string) (schema.ACLTemplateSaved, error) {
	path, err := hexPath(aclTemplates, id)
	if err != nil {
		return schema.ACLTemplateSaved{}, err
	}
	return send[schema.ACLTemplateSaved](ctx, c, call{method: http.MethodPut, path: path, body: schema.ACLTemplateRequest{Name: name}})
}

// DeleteACLTemplate deletes a template. IN_USE where a templated directory
// uses it; NOT_REMOVED, with the answer filled, where a fresh read still shows it.
func (c *Client) DeleteACLTemplate(ctx context.Context, id string) (schema.ACLTemplateGone, error) {
	path, err := hexPath(aclTemplates, id)
	if err != nil {
		return schema.ACLTemplateGone{}, err
	}
	return send[schema.ACLTemplateGone](ctx, c, call{method: http.MethodDelete, path: path})
}

// TemplateMembers lists the members of a template.
func (c *Client) TemplateMembers(ctx context.Context, id string) (schema.TemplateMemberList, error) {
	path, err := membersPath(id)
	if err != nil {
		return schema.TemplateMemberList{}, err
	}
	return send[schema.TemplateMemberList](ctx, c, call{method: http.MethodGet, path: path})
}

// PutTemplateMember makes a principal a member with exactly these rights and
// limits. NOT_SAVED, with the answer filled, where they do not read back;
// LAST_WRITER where nobody would be left to change the template.
func (c *Client) PutTemplateMember(ctx context.Context, id string, member schema.TemplateMemberRequest) (schema.TemplateMemberSaved, error) {
	path, err := membersPath(id)
	if err != nil {
		return schema.TemplateMemberSaved{}, err
	}
	return post[schema.TemplateMemberSaved](ctx, c, path, member)
}

// RemoveTemplateMember ends a membership. NOT_REMOVED, with the answer filled,
// where a fresh read still shows it; LAST_WRITER where nobody would be left to
// change the template.
func (c *Client) RemoveTemplateMember(ctx context.Context, id string, system schema.SystemID, principal schema.DecimalID) (schema.TemplateMemberGone, error) {
	path, err := membersPath(id)
	if err != nil {
		return schema.TemplateMemberGone{}, err
	}
	path += "/" + strconv.FormatUint(uint64(system), 10) + "/" + principal.String()
	return send[schema.TemplateMemberGone](ctx, c, call{method: http.MethodDelete, path: path})
}

func membersPath(id string) (string, error) {
	path, err := hexPath(aclTemplates, id)
	return path + "/members", err
}
