package controllers

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
)

// clerk is a fake key server that records the order of the writes to a template.
type clerk struct {
	connection.API
	members []schema.TemplateMember
	said    []string
}

func (c *clerk) GetReadiness(ctx context.Context) (schema.Ready, error) {
	<-ctx.Done() // this test does not need the connection
	return schema.Ready{}, ctx.Err()
}

func (c *clerk) ListACLTemplateMembers(context.Context, schema.ByID) (schema.TemplateMemberList, error) {
	return schema.TemplateMemberList{Members: c.members}, nil
}

func (c *clerk) SetACLTemplateMember(_ context.Context, m schema.SetACLTemplateMemberRequest) (schema.TemplateMemberSaved, error) {
	c.said = append(c.said, fmt.Sprintf("member %d/%s", m.SystemID, m.PrincipalID))
	c.members = append(c.members, schema.TemplateMember{SystemID: m.SystemID, PrincipalID: m.PrincipalID, Rights: m.Rights, MaxUsage: usage(m.MaxUsage)})
	return schema.TemplateMemberSaved{Saved: true, Members: c.members}, nil
}

func (c *clerk) ListTemplatedDirectories(context.Context, schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error) {
	return schema.TemplatedDirectoryList{}, nil
}

func (c *clerk) CreateTemplatedDirectory(_ context.Context, in schema.CreateTemplatedDirectoryRequest) (schema.TemplatedDirectorySaved, error) {
	c.said = append(c.said, "directory "+in.Path)
	return schema.TemplatedDirectorySaved{Saved: true, Directory: &schema.TemplatedDirectory{Path: in.Path}}, nil
}

// TestTemplatesAreFilledInOrder checks that the order of writes does not depend on the order of map iteration.
func TestTemplatesAreFilledInOrder(t *testing.T) {
	service := &clerk{}
	connections := connection.NewConnections(func(connection.Endpoint) (connection.API, error) { return service, nil }, clock.RealClock{}, connection.DefaultTiming, logr.Discard())
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = connections.Start(ctx) }()
	defer func() { end(); <-ended }()
	c, err := connections.Ensure("here", connection.Login{})
	if err != nil {
		t.Fatal(err)
	}
	want := declaredTemplate{name: "keys", membership: membership{members: map[memberKey]declaredMember{}}, paths: map[string]bool{}}
	var members, directories []string
	for system := range schema.SystemID(2) {
		for n := range byte(5) {
			key := memberKey{system: system, principal: schema.DecimalID{7: n}}
			want.members[key] = declaredMember{TemplateMemberRequest: schema.TemplateMemberRequest{
				SystemID: key.system, PrincipalID: key.principal, Rights: schema.RightNamed("READ"),
			}}
			path := fmt.Sprintf("/%d/%d/", system, n)
			want.paths[path] = true
			members = append(members, fmt.Sprintf("member %d/%s", key.system, key.principal))
			directories = append(directories, "directory "+path)
		}
	}
	if _, err := (aclTemplateAdapter{}).fill(t.Context(), c, want, schema.HexID{7: 1}); err != nil {
		t.Fatal(err)
	}
	if ordered := slices.Concat(members, directories); !slices.Equal(service.said, ordered) {
		t.Errorf("written were\n%q, want\n%q", service.said, ordered)
	}
}
