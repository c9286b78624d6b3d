package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

func version(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.Version, error) {
	v, err := ops.Version(ctx, by)
	if err != nil {
		return schema.Version{}, err
	}
	return schema.Version{
		Major: &v.Major, Minor: &v.Minor, Build: &v.Build, Edition: &v.Edition, Version: v.Banner,
		Detail: "as the key server reports it",
	}, nil
}
