package verified

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// ConfigResult is the part of the configuration that may be published.
type ConfigResult struct {
	keyserver.ConfigProjection
	Allowed []keyserver.AllowedTag // the tags that may be published
	Detail  string
}

// Configuration reads the part of the key server's configuration that xpath selects. It returns only the tags that may
// be published. It parses the path before the request, because the empty path could select everything.
func (s *Service) Configuration(ctx context.Context, by keyserver.Caller, xpath string) (ConfigResult, error) {
	path, ok := keyserver.ParseConfigPath(xpath)
	if !ok {
		return ConfigResult{}, fault.New(fault.BadRequest,
			"xpath: must be %s, or tags separated by dots, each Tag or Tag[@attr=value]; no leading slash, no wildcards", keyserver.ConfigRoot)
	}
	root, err := s.ks.Configuration(ctx, by, xpath)
	if err != nil {
		return ConfigResult{}, err
	}
	p, found := keyserver.ProjectConfig(root, path)
	if !found {
		return ConfigResult{}, fault.New(fault.NotFound, "xpath: no part of the configuration matches; read %s to see all parts", keyserver.ConfigRoot)
	}
	return ConfigResult{
		ConfigProjection: p, Allowed: keyserver.ConfigAllowList,
		Detail: fmt.Sprintf("%d nodes returned, %d suppressed; element text is never returned", len(p.Nodes), p.Suppressed),
	}, nil
}
