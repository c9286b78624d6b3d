package peer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/clientaddr"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of the fields that a peer sends.
const (
	maxFilename  = 1024
	maxRequestID = 64
	nonceLen     = 16
)

// Server executes the calls of peers. It checks the form of each call. keys and witness authorize the calls.
type Server struct {
	peerpb.UnimplementedKeyServerServer
	keys       keyserver.Federated
	witness    Witness
	system     keyserver.SystemID
	clock      func() time.Time
	logger     *slog.Logger
	limiter    *callLimiter
	complaints *rate.Limiter // limits log lines about misbehaving peers

	maxCall, maxStream time.Duration
	observer           Observer
}

// Observe sets the observer. Call it before the first request.
func (s *Server) Observe(o Observer) { s.observer = o }

// NewServer returns a server for one key server.
func NewServer(keys keyserver.Federated, witness Witness, system keyserver.SystemID, clock func() time.Time, logger *slog.Logger) *Server {
	return &Server{
		keys: keys, witness: witness, system: system, clock: clock, logger: logger, limiter: newCallLimiter(),
		complaints: rate.NewLimiter(rate.Every(complainEvery), complaintsAtOnce),
		maxCall:    maxCall, maxStream: maxStream,
	}
}

// Authorize implements peerpb.KeyServerServer.
func (s *Server) Authorize(ctx context.Context, in *peerpb.AuthorizeRequest) (*peerpb.AuthorizeResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "authorize", []byte(in.GetFilename()))
	if err == nil && len(in.GetFilename()) > maxFilename {
		err = malformed("the file name is longer than %d bytes", maxFilename)
	}
	if err != nil {
		return nil, err
	}
	grant, err := s.keys.AuthorizeKey(ctx, by, keyserver.Use{Link: link, Filename: in.GetFilename()})
	if err != nil {
		return nil, err
	}
	return &peerpb.AuthorizeResponse{FilenameAudited: grant.FilenameAudited}, nil
}

// HMAC implements peerpb.KeyServerServer.
func (s *Server) HMAC(ctx context.Context, in *peerpb.HMACRequest) (*peerpb.HMACResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "hmac", in.GetData())
	if err != nil {
		return nil, err
	}
	mac, err := s.keys.HMAC(ctx, by, keyserver.HMACRequest{Link: link, Message: piece(in.GetData())})
	if err != nil {
		return nil, err
	}
	return &peerpb.HMACResponse{Mac: mac[:]}, nil
}

// HMACStream implements peerpb.KeyServerServer.
func (s *Server) HMACStream(stream grpc.ClientStreamingServer[peerpb.HMACPiece, peerpb.HMACResponse]) error {
	by, first, err := s.begin(stream, "stream")
	if err != nil {
		return err
	}
	mac, err := s.keys.HMAC(stream.Context(), by, keyserver.HMACRequest{Link: keyserver.HiddenLink(first.GetLink()), Message: &arriving{stream: stream}})
	if err != nil {
		return err
	}
	return stream.SendAndClose(&peerpb.HMACResponse{Mac: mac[:]})
}

// pieceStream is a stream of the pieces of a message.
type pieceStream interface {
	Recv() (*peerpb.HMACPiece, error)
	grpc.ServerStream
}

// begin reads the first package of a stream, which must have no data.
func (s *Server) begin(stream pieceStream, method string) (keyserver.Caller, *peerpb.HMACPiece, error) {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		err = malformed("the stream has no package")
	}
	if err != nil {
		return keyserver.Caller{}, nil, err
	}
	by, _, err := s.caller(stream.Context(), first.GetCall(), first.GetLink(), method)
	if err != nil {
		return keyserver.Caller{}, nil, err
	}
	by.Peer.Single = true // a streamed call is not repeated: its call key does not cover the message
	if first.GetLast() || len(first.GetData()) > 0 {
		return keyserver.Caller{}, nil, malformed("the first packet of a stream must contain the call and the hidden link, and no part of the message")
	}
	return by, first, nil
}

// piece is a message that was received completely.
type piece []byte

// WriteTo implements keyserver.Message.
func (p piece) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(p)
	return int64(n), err
}

// arriving is a message that is being received. It is complete only if a piece is marked as the last. Without this
// rule, the key server would compute the MAC of a part of a message if the peer disconnects.
type arriving struct {
	stream pieceStream
	// verify reports that the last piece has the MAC to verify. WriteTo stores that MAC in mac.
	verify bool
	mac    [keyserver.MACSize]byte
}

// WriteTo implements keyserver.Message.
func (a *arriving) WriteTo(w io.Writer) (int64, error) {
	piece := inbound{to: w}
	for !piece.last {
		err := a.stream.RecvMsg(&piece)
		if errors.Is(err, io.EOF) {
			err = malformed("the message ended before its last piece")
		}
		if err == nil && piece.n > keyserver.MaxMessage {
			err = malformed("the message is longer than %d bytes", keyserver.MaxMessage)
		}
		if err != nil {
			return piece.n, err
		}
	}
	if a.verify && copy(a.mac[:], piece.mac) != len(a.mac) {
		return piece.n, malformed("the last piece has no MAC of %d bytes", len(a.mac))
	}
	return piece.n, nil
}

// ReadKey implements peerpb.KeyServerServer.
func (s *Server) ReadKey(ctx context.Context, in *peerpb.KeyRequest) (*peerpb.KeyResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "key")
	if err != nil {
		return nil, err
	}
	meta, err := s.keys.Key(ctx, by, link)
	if err != nil {
		return nil, err
	}
	return &peerpb.KeyResponse{Algorithm: string(meta.Algorithm), KeyBytes: bytesOf(meta.KeyBytes), Life: lifeTo(meta)}, nil
}

// ReadACL implements peerpb.KeyServerServer.
func (s *Server) ReadACL(ctx context.Context, in *peerpb.KeyRequest) (*peerpb.ACLResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "acl")
	if err != nil {
		return nil, err
	}
	acl, err := s.keys.ACL(ctx, by, link)
	if err != nil {
		return nil, err
	}
	return aclTo(acl), nil
}

// ChangeACL implements peerpb.KeyServerServer.
func (s *Server) ChangeACL(ctx context.Context, in *peerpb.ChangeACLRequest) (*peerpb.ChangeACLResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "change", termsOf(in)...)
	if err != nil {
		return nil, err
	}
	change, err := changeFrom(in, link)
	if err != nil {
		return nil, err
	}
	switch in.GetKind() {
	case peerpb.ChangeACLRequest_KIND_GRANT:
		err = s.keys.GrantACL(ctx, by, change)
	case peerpb.ChangeACLRequest_KIND_AMEND:
		err = s.keys.AmendACL(ctx, by, change)
	case peerpb.ChangeACLRequest_KIND_REVOKE:
		err = s.keys.RevokeACL(ctx, by, keyserver.ACLRevocation{Link: link, Principal: change.Principal})
	default:
		err = malformed("the kind of the change is unknown")
	}
	if err != nil {
		return nil, err
	}
	return &peerpb.ChangeACLResponse{}, nil
}

// termsOf returns all fields of a change, as terms of the call key.
func termsOf(in *peerpb.ChangeACLRequest) [][]byte {
	fixed := binary.BigEndian.AppendUint32(nil, uint32(in.GetKind())) //nolint:gosec // any number will do
	fixed = binary.BigEndian.AppendUint32(fixed, in.GetRights())
	fixed = binary.BigEndian.AppendUint64(fixed, uint64(in.GetMaxUsage())) //nolint:gosec // any number will do
	return [][]byte{fixed, []byte(refFrom(in.GetPrincipal()).String()), in.GetStart(), in.GetEnd()}
}

// changeFrom converts a change of a peer. It rejects values that no ACL entry can have.
func changeFrom(in *peerpb.ChangeACLRequest, link keyserver.HiddenLink) (keyserver.ACLChange, error) {
	change := keyserver.ACLChange{Link: link, Principal: refFrom(in.GetPrincipal())}
	if change.Principal.ID.IsZero() {
		return change, malformed("the change names no principal")
	}
	if in.GetKind() == peerpb.ChangeACLRequest_KIND_REVOKE {
		return change, nil
	}
	var ok, also bool
	change.Rights, change.MaxUsage = keyserver.Rights(in.GetRights()), in.GetMaxUsage()
	change.Start, ok = stampFrom(in.GetStart())
	change.End, also = stampFrom(in.GetEnd())
	switch {
	case change.Rights == 0 || change.Rights&^keyserver.AllRights != 0:
		return change, malformed("the rights are empty, or contain an unknown right")
	case change.MaxUsage < keyserver.NoUsageLimit:
		return change, malformed("the usage limit must be at least -1")
	case !ok || !also:
		return change, malformed("start and end must each be empty or have 8 bytes")
	}
	return change, nil
}

// Lookup implements peerpb.KeyServerServer.
func (s *Server) Lookup(ctx context.Context, in *peerpb.LookupRequest) (*peerpb.LookupResponse, error) {
	by, _, err := s.caller(ctx, in.GetCall(), nil, "lookup")
	if n := len(in.GetPrincipals()); err == nil && (n == 0 || n > keyserver.MaxLookup) {
		err = malformed("a lookup must have 1 to %d principals", keyserver.MaxLookup)
	}
	if err != nil {
		return nil, err
	}
	pairs := make([]keyserver.PrincipalRef, len(in.GetPrincipals()))
	for i, id := range idsFrom(in.GetPrincipals()) {
		pairs[i] = keyserver.PrincipalRef{System: s.system, ID: id}
	}
	found, err := s.keys.LookupPrincipals(ctx, by, pairs)
	if err != nil {
		return nil, err
	}
	out := &peerpb.LookupResponse{Principals: make([]*peerpb.Principal, len(found))}
	for i, p := range found {
		out.Principals[i] = principalTo(p)
	}
	return out, nil
}

// caller returns the caller and the hidden link of a call. The connection alone determines the system id of the peer.
// The call key covers the method, the principal, the link and terms, which are all other arguments. So a different call
// with the same nonce has a different key.
func (s *Server) caller(ctx context.Context, in *peerpb.Call, link []byte, method string, terms ...[]byte) (keyserver.Caller, keyserver.HiddenLink, error) {
	from, err := connected(ctx)
	if err != nil {
		return keyserver.Caller{}, "", err
	}
	if p := placeOf(ctx); p != nil {
		p.requestID = in.GetRequestId()
	}
	by := keyserver.Caller{Kind: keyserver.PeerSession, RequestID: in.GetRequestId(), Address: addressOf(ctx), Peer: &keyserver.PeerCall{System: from.System}}
	switch {
	case !plain(in.GetRequestId()):
		return by, "", malformed("the request id must be 1 to %d letters, digits, dots, hyphens and underscores", maxRequestID)
	case len(in.GetNonce()) != nonceLen:
		return by, "", malformed("the nonce must have %d bytes", nonceLen)
	case len(link) > values.MaxHiddenLink:
		return by, "", malformed("the hidden link is longer than %d bytes", values.MaxHiddenLink)
	case len(in.GetGroups()) > keyserver.MaxGroups:
		return by, "", malformed("the principal is in more than %d groups", keyserver.MaxGroups)
	case len(in.GetPrincipal().GetName()) > keyserver.MaxPrincipalName:
		return by, "", malformed("the principal's name is longer than %d bytes", keyserver.MaxPrincipalName)
	}
	if p := in.GetPrincipal(); p != nil {
		by.Principal, by.Name, by.Type = refFrom(p.GetRef()), p.GetName(), keyserver.PrincipalType(p.GetType())
	} else {
		by.Principal = keyserver.PrincipalRef{System: s.system, ID: from.Transport}
		by.Name, by.Type = from.Certificate.Subject, keyserver.CertificatePrincipal
	}
	for _, id := range idsFrom(in.GetGroups()) {
		by.Peer.Groups = append(by.Peer.Groups, keyserver.PrincipalRef{System: from.System, ID: id})
	}
	if in.GetActor() != nil {
		by.Actor = keyserver.PrincipalRef{System: from.System, ID: values.IDFromUint64(in.GetActor().GetId())}
	}
	by.Peer.Key = callKey(from.System, in.GetNonce(), append([][]byte{[]byte(method), []byte(by.Principal.String()), link}, terms...))
	return by, keyserver.HiddenLink(link), nil
}

// connected returns the peer of the connection of a call. It fails if the connection is no longer permitted.
func connected(ctx context.Context) (keyserver.TrustedServer, error) {
	conn := connOf(ctx)
	if conn == nil {
		return keyserver.TrustedServer{}, malformed("the connection is not from a peer")
	}
	endpoint := conn.endpoint
	if err := endpoint.settle(ctx); err != nil {
		return keyserver.TrustedServer{}, err
	}
	if !endpoint.holds(conn) {
		return keyserver.TrustedServer{}, status.Error(codes.Unavailable, "the connection is no longer trusted")
	}
	return conn.peer, nil
}

// addressOf returns the IP address of the peer, or "" if it is unknown.
func addressOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if at := clientaddr.OfConn(p.Addr); at.IsValid() {
		return at.String()
	}
	return ""
}

// connOf returns the connection of a call, or nil if an endpoint did not accept it.
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(authInfo)
	return info.conn
}

// callKey returns the SHA-256 hash that identifies a call of a peer. It covers the number and the lengths of the terms,
// so that different terms cannot give the same input.
func callKey(from keyserver.SystemID, nonce []byte, terms [][]byte) (key keyserver.CallKey) {
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 128), uint32(from))
	head = append(head, nonce...)
	head = append(head, byte(len(terms))) //nolint:gosec // a handful
	for _, term := range terms {
		head = binary.BigEndian.AppendUint64(head, uint64(len(term)))
	}
	h := sha256.New()
	h.Write(head)
	for _, term := range terms {
		h.Write(term)
	}
	h.Sum(key[:0])
	return key
}

// errMalformed marks refusals of malformed requests. No client of this project sends such requests.
var errMalformed = errors.New("malformed")

func malformed(format string, args ...any) error {
	return fault.New(fault.InvalidArgument, format, args...).Audited(fault.ReasonInvalidArgument).Because(errMalformed)
}

// plain reports whether a request id has only permitted characters and a permitted length.
func plain(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
