package gate

import (
	"context"
	"errors"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
)

// Prefetch fills the caches with the principals that the next decisions need, and with their certificates. It uses one
// read for all principals and one read for all certificates.
func (g *Gate) Prefetch(ctx context.Context, ids []keyserver.ID) error {
	err := g.principals.Fill(ids, func(missing []keyserver.ID) (map[keyserver.ID]keyserver.Principal, error) {
		list, err := g.Store.PrincipalsByID(ctx, missing)
		found := make(map[keyserver.ID]keyserver.Principal, len(list))
		for _, p := range list {
			found[p.ID] = p
		}
		return found, err
	})
	var machines []keyserver.ID
	for i := 0; i < len(ids) && err == nil; i++ {
		var p keyserver.Principal
		if p, err = g.CachedPrincipal(ctx, ids[i]); p.Type == keyserver.CertificatePrincipal {
			machines = append(machines, p.ID)
		}
		if errors.Is(err, sqlstore.ErrNotFound) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return g.prefetchCertificates(ctx, machines)
}

func (g *Gate) prefetchCertificates(ctx context.Context, machines []keyserver.ID) error {
	keep := g.certificates.Reading()
	return g.enrolled.Fill(machines, func(missing []keyserver.ID) (map[keyserver.ID][]keyserver.Certificate, error) {
		list, err := g.Store.CertificatesOfThese(ctx, missing)
		found := map[keyserver.ID][]keyserver.Certificate{}
		for _, c := range current(list) {
			found[c.Principal] = append(found[c.Principal], c)
			keep(c.ID, c)
		}
		return found, err
	})
}
