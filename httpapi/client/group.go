package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const groups = principals + "/groups"

// CreateGroup makes a group. NOT_SAVED, with the answer filled, where it does
// not read back.
func (c *Client) CreateGroup(ctx context.Context, in schema.CreateGroupRequest) (schema.PrincipalSaved, error) {
	return send[schema.PrincipalSaved](ctx, c, call{method: http.MethodPost, path: groups, body: in, nameless: true})
}

// GroupMembers lists the members of a group.
func (c *Client) GroupMembers(ctx context.Context, group string, q schema.GroupMembersQuery) (schema.GroupMembers, error) {
	path, err := hexPath(groups, group)
	if err != nil {
		return schema.GroupMembers{}, err
	}
	return send[schema.GroupMembers](ctx, c, call{method: http.MethodGet, path: path + "/members" + query(q)})
}

// AddGroupMember puts a principal into a group. NOT_SAVED, with the answer
// filled, where it does not read back.
func (c *Client) AddGroupMember(ctx context.Context, group, principal string) (schema.GroupMemberSaved, error) {
	path, err := memberPath(group, principal)
	if err != nil {
		return schema.GroupMemberSaved{}, err
	}
	return send[schema.GroupMemberSaved](ctx, c, call{method: http.MethodPut, path: path})
}

// RemoveGroupMember takes a principal out of a group. NOT_REMOVED, with the
// answer filled, where it still reads back.
func (c *Client) RemoveGroupMember(ctx context.Context, group, principal string) (schema.GroupMemberGone, error) {
	path, err := memberPath(group, principal)
	if err != nil {
		return schema.GroupMemberGone{}, err
	}
	return send[schema.GroupMemberGone](ctx, c, call{method: http.MethodDelete, path: path})
}

func memberPath(group, principal string) (string, error) {
	path, err := hexPath(groups, group)
	if err != nil {
		return "", err
	}
	return hexPath(path+"/members", principal)
}
