package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func getConfiguration(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.ConfigRequest) (schema.Configuration, error) {
	r, err := ops.Configuration(ctx, by, in.XPath)
	if err != nil {
		return schema.Configuration{}, err
	}
	return schema.Configuration{
		Nodes: Convert(r.Nodes, configNodeOf), Suppressed: r.Suppressed, AllowList: allowListOf(r.Allowed), Detail: r.Detail,
	}, nil
}

func configNodeOf(n keyserver.ProjectedNode) schema.ConfigNode {
	return schema.ConfigNode{Tag: n.Tag, XPath: n.XPath, Attrs: n.Attrs}
}

func allowListOf(table []keyserver.AllowedTag) schema.AllowList {
	list := schema.AllowList{}
	for _, row := range table {
		list[row.Tag] = append([]string{}, row.Attributes...)
	}
	return list
}
