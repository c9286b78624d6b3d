package server

import (
	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/server/console"
)

func (s *Server) pages() (httpapi.Pages, error) {
	if !s.cfg.Console {
		return nil, nil
	}
	return console.Open()
}
