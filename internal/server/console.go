package server

import (
	"github.com/keyserver-operator/keyserver-operator/httpapi"
	"github.com/keyserver-operator/keyserver-operator/internal/server/console"
)

// pages is the web console, nil where nobody asked for it.
func (s *Server) pages() (httpapi.Pages, error) {
	if !s.cfg.Console {
		return nil, nil
	}
	return console.Open()
}
