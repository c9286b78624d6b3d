package operations

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/verified"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

func listTrustedServers(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.TrustedServersQuery) (schema.TrustedServerList, error) {
	show := trustedServerOf
	if in.IncludeBodies {
		show = trustedServerWithBlob
	}
	if in.Name == nil {
		list, err := ops.TrustedServers(ctx, by)
		return schema.TrustedServerList{TrustedServers: Convert(list, show)}, err
	}
	list, err := ops.TrustedServersNamed(ctx, by, *in.Name)
	return schema.TrustedServerList{TrustedServers: Convert(list, show), MatchedOn: verified.MatchedOnServerName}, err
}

func addTrustedServer(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.AddTrustedServerRequest) (schema.TrustedServerSaved, error) {
	r, err := ops.AddTrustedServer(ctx, by, keyserver.NewTrustedServer{
		Blob: keyserver.TrustBlob(in.TrustBlob), FriendlyName: in.FriendlyName, Description: in.Description, Witness: in.Witness, Replace: in.Replace,
	})
	return schema.TrustedServerSaved{
		TrustedServers: Convert(r.Servers, trustedServerOf), SystemID: schema.SystemID(r.System), Saved: r.Saved,
		ACLSideEffect: r.ACLSideEffect, Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func updateTrustedServer(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.UpdateTrustedServerRequest) (schema.TrustedServerUpdated, error) {
	if in.FriendlyName == nil && in.Description == nil && in.Witness == nil {
		return schema.TrustedServerUpdated{}, fault.Field("friendlyName", "is missing, and so are description and witness; send at least one of them")
	}
	r, err := ops.UpdateTrustedServer(ctx, by, keyserver.TrustedServerChange{
		System:       keyserver.SystemID(in.SystemID),
		FriendlyName: in.FriendlyName, Description: in.Description, Witness: in.Witness,
	})
	return schema.TrustedServerUpdated{Saved: r.Saved, Verdict: schema.Verdict{Detail: r.Detail}, TrustedServer: optional(r.Server, trustedServerOf)}, err
}

func removeTrustedServer(ctx context.Context, ops *verified.Service, by keyserver.Caller, in schema.BySystemID) (schema.TrustedServerGone, error) {
	r, err := ops.RemoveTrustedServer(ctx, by, keyserver.SystemID(in.SystemID))
	return schema.TrustedServerGone{
		Removed: (*schema.SystemID)(r.Removed), TrustedServers: Convert(r.Servers, trustedServerOf),
		OrphanedPrincipalTrusts: Convert(r.Orphans, principalTrustOf),
		ACLSideEffect:           r.ACLSideEffect, PrincipalTrustSideEffect: r.PrincipalTrustSideEffect,
		TransportPrincipalSideEffect: r.TransportPrincipalSideEffect, Verdict: schema.Verdict{Detail: r.Detail},
	}, err
}

func localTrustInfo(ctx context.Context, ops *verified.Service, by keyserver.Caller, _ routes.Nothing) (schema.TrustInfo, error) {
	info, err := ops.TrustInfo(ctx, by)
	if err != nil {
		return schema.TrustInfo{}, err
	}
	out := schema.TrustInfo{
		SystemID: schema.SystemID(info.System), ServerName: info.ServerName, Chain: info.Chain,
		Certificate: certificateOf(info.Certificate),
		Detail:      "other key servers cannot reach this one; give it an external listener (--external-listen), and a host name or an address as its server name",
	}
	out.Certificate.CertificateID = nil // the certificate is not stored
	if info.Port != 0 {
		port := int(info.Port)
		out.Port = &port
	}
	if blob, ok := info.Blob(); ok {
		out.TrustBlob = (*schema.TrustBlob)(&blob)
		out.Detail = "to register this key server with a peer, add the CA of the chain to the trusted CAs of the peer, then send POST /api/trusted-servers to the peer"
	}
	return out, nil
}

// trustedServerWithBlob converts a peer with its trust blob, which registers it at another key server. The blob
// contains no secret: the peer sends it to any client.
func trustedServerWithBlob(p keyserver.TrustedServer) schema.TrustedServer {
	out := trustedServerOf(p)
	certificate := certificateWithBody(p.Certificate)
	out.Certificate = &certificate
	if p.Port != 0 && len(p.Chain) > 0 {
		out.TrustBlob = &schema.TrustBlob{System: p.System, ServerName: p.Name, Port: p.Port, Chain: p.Chain}
	}
	return out
}

func trustedServerOf(p keyserver.TrustedServer) schema.TrustedServer {
	system, port, transport := schema.SystemID(p.System), int(p.Port), schema.DecimalID(p.Transport)
	certificate := certificateOf(p.Certificate)
	return schema.TrustedServer{
		SystemID: &system, ServerName: &p.Name, Port: &port, FriendlyName: &p.FriendlyName, Description: &p.Description,
		TransportPrincipalID: &transport, RoleIDs: hexIDs(p.Roles), Certificate: &certificate, Witness: &p.Witness,
	}
}
