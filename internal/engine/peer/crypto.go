package peer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// maxText is the maximum size in bytes of a response with a text or its ciphertext.
const maxText = maxPackage

// MAC implements keyserver.Federated.
func (r remote) MAC(ctx context.Context, by keyserver.Caller, in keyserver.MACRequest) (keyserver.MAC, error) {
	call := callOf(by)
	out, err := deliver(ctx, r, in.Message, delivery[peerpb.MACResponse]{
		first:  &peerpb.HMACPiece{Call: call, Link: []byte(in.Lineage), Line: true},
		method: peerpb.KeyServer_MACStream_FullMethodName, stream: peerpb.KeyServerClient.MACStream,
		whole: func(ctx context.Context, text []byte) (*peerpb.MACResponse, error) {
			return callUnary(ctx, r, uses, &peerpb.MACRequest{Call: call, Line: []byte(in.Lineage), Data: text}, peerpb.KeyServerClient.MAC)
		},
	})
	if err != nil {
		return keyserver.MAC{}, err
	}
	used, err := r.used(out, keyserver.KeyChoice{Lineage: in.Lineage})
	if err != nil {
		return keyserver.MAC{}, err
	}
	sum, err := macFrom(r, out.GetMac())
	return keyserver.MAC{UsedKey: used, Sum: sum}, err
}

// VerifyMAC implements keyserver.Federated.
func (r remote) VerifyMAC(ctx context.Context, by keyserver.Caller, in keyserver.MACCheck) (keyserver.MACVerdict, error) {
	call, link, line := callOf(by), []byte(in.Named()), in.Lineage != ""
	mac := func() []byte { m := in.MAC(); return m[:] }
	out, err := deliver(ctx, r, in.Message, delivery[peerpb.VerifyMACResponse]{
		first:  &peerpb.HMACPiece{Call: call, Link: link, Line: line},
		method: peerpb.KeyServer_VerifyMACStream_FullMethodName, stream: peerpb.KeyServerClient.VerifyMACStream, mac: mac,
		whole: func(ctx context.Context, text []byte) (*peerpb.VerifyMACResponse, error) {
			whole := &peerpb.VerifyMACRequest{Call: call, Link: link, Line: line, Mac: mac(), Data: text}
			return callUnary(ctx, r, uses, whole, peerpb.KeyServerClient.VerifyMAC)
		},
	})
	if err != nil {
		return keyserver.MACVerdict{}, err
	}
	used, err := r.used(out, in.KeyChoice)
	return keyserver.MACVerdict{UsedKey: used, Valid: err == nil && out.GetValid()}, err
}

// Encrypt implements keyserver.Federated.
func (r remote) Encrypt(ctx context.Context, by keyserver.Caller, in keyserver.Encryption) (keyserver.Ciphertext, error) {
	request := &peerpb.EncryptRequest{
		Call: callOf(by), Link: []byte(in.Named()), Line: in.Lineage != "", Plain: in.Plain, Associated: in.Associated,
	}
	out, err := callUnary(ctx, r, uses, request, longer(peerpb.KeyServerClient.Encrypt))
	if err != nil {
		return keyserver.Ciphertext{}, err
	}
	used, err := r.used(out, in.KeyChoice)
	if err == nil && len(out.GetSealed()) <= len(in.Plain) {
		err = r.invalidResponse("a ciphertext")
	}
	if err != nil {
		return keyserver.Ciphertext{}, err
	}
	return keyserver.Ciphertext{UsedKey: used, Sealed: out.GetSealed()}, nil
}

// Decrypt implements keyserver.Federated.
func (r remote) Decrypt(ctx context.Context, by keyserver.Caller, in keyserver.Decryption) (keyserver.Plaintext, error) {
	request := &peerpb.DecryptRequest{
		Call: callOf(by), Link: []byte(in.Named()), Line: in.Lineage != "", Sealed: in.Sealed, Associated: in.Associated,
	}
	out, err := callUnary(ctx, r, uses, request, longer(peerpb.KeyServerClient.Decrypt))
	if err != nil {
		return keyserver.Plaintext{}, err
	}
	used, err := r.used(out, in.KeyChoice)
	if err == nil && len(out.GetPlain()) > keyserver.MaxPlain {
		err = r.invalidResponse("a plaintext")
	}
	if err != nil {
		return keyserver.Plaintext{}, err
	}
	return keyserver.Plaintext{UsedKey: used, Plain: out.GetPlain()}, nil
}

// longer returns a call that accepts a response of up to maxText bytes.
func longer[In, Out any](call method[In, Out]) method[In, Out] {
	return func(to peerpb.KeyServerClient, ctx context.Context, in *In, options ...grpc.CallOption) (*Out, error) {
		return call(to, ctx, in, append(options, grpc.MaxCallRecvMsgSize(maxText))...)
	}
}

// used returns the key that the response names. It fails if the request does not permit that key.
func (r remote) used(out interface {
	GetLink() []byte
	GetGeneration() uint32
}, asked keyserver.KeyChoice,
) (keyserver.UsedKey, error) {
	used := keyserver.UsedKey{Link: keyserver.HiddenLink(out.GetLink()), Generation: int(out.GetGeneration())}
	system, _, ok := used.Link.Split()
	if !ok || system != r.peer.System || used.Generation < 1 || asked.Key != "" && used.Link != asked.Key {
		return keyserver.UsedKey{}, r.invalidResponse("a key of the request")
	}
	return used, nil
}

// MAC implements peerpb.KeyServerServer.
func (s *Server) MAC(ctx context.Context, in *peerpb.MACRequest) (*peerpb.MACResponse, error) {
	by, line, err := s.caller(ctx, in.GetCall(), in.GetLine(), "mac", in.GetData())
	if err != nil {
		return nil, err
	}
	mac, err := s.keys.MAC(ctx, by, keyserver.MACRequest{Lineage: line, Message: piece(in.GetData())})
	if err != nil {
		return nil, err
	}
	return macTo(mac), nil
}

// MACStream implements peerpb.KeyServerServer.
func (s *Server) MACStream(stream grpc.ClientStreamingServer[peerpb.HMACPiece, peerpb.MACResponse]) error {
	by, first, err := s.begin(stream, "macStream")
	if err != nil {
		return err
	}
	mac, err := s.keys.MAC(stream.Context(), by, keyserver.MACRequest{Lineage: keyserver.HiddenLink(first.GetLink()), Message: &arriving{stream: stream}})
	if err != nil {
		return err
	}
	return stream.SendAndClose(macTo(mac))
}

func macTo(mac keyserver.MAC) *peerpb.MACResponse {
	return &peerpb.MACResponse{Mac: mac.Sum[:], Link: []byte(mac.Link), Generation: bytesOf(mac.Generation)}
}

// VerifyMAC implements peerpb.KeyServerServer.
func (s *Server) VerifyMAC(ctx context.Context, in *peerpb.VerifyMACRequest) (*peerpb.VerifyMACResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "verify", choiceTerm(in.GetLine()), in.GetMac(), in.GetData())
	var mac [keyserver.MACSize]byte
	if err == nil && (len(in.GetMac()) != len(mac) || copy(mac[:], in.GetMac()) != len(mac)) {
		err = malformed("the MAC must have %d bytes", len(mac))
	}
	if err != nil {
		return nil, err
	}
	verdict, err := s.keys.VerifyMAC(ctx, by, keyserver.MACCheck{
		KeyChoice: choiceFrom(link, in.GetLine()), Message: piece(in.GetData()), MAC: func() [keyserver.MACSize]byte { return mac },
	})
	if err != nil {
		return nil, err
	}
	return verdictTo(verdict), nil
}

// VerifyMACStream implements peerpb.KeyServerServer.
func (s *Server) VerifyMACStream(stream grpc.ClientStreamingServer[peerpb.HMACPiece, peerpb.VerifyMACResponse]) error {
	by, first, err := s.begin(stream, "verifyStream")
	if err != nil {
		return err
	}
	message := &arriving{stream: stream, verify: true}
	verdict, err := s.keys.VerifyMAC(stream.Context(), by, keyserver.MACCheck{
		KeyChoice: choiceFrom(keyserver.HiddenLink(first.GetLink()), first.GetLine()), Message: message,
		MAC: func() [keyserver.MACSize]byte { return message.mac },
	})
	if err != nil {
		return err
	}
	return stream.SendAndClose(verdictTo(verdict))
}

func verdictTo(v keyserver.MACVerdict) *peerpb.VerifyMACResponse {
	return &peerpb.VerifyMACResponse{Valid: v.Valid, Link: []byte(v.Link), Generation: bytesOf(v.Generation)}
}

// Encrypt implements peerpb.KeyServerServer.
func (s *Server) Encrypt(ctx context.Context, in *peerpb.EncryptRequest) (*peerpb.EncryptResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "encrypt", choiceTerm(in.GetLine()), in.GetPlain(), in.GetAssociated())
	if err == nil {
		err = textFits(in.GetPlain(), keyserver.MaxPlain, in.GetAssociated())
	}
	if err != nil {
		return nil, err
	}
	sealed, err := s.keys.Encrypt(ctx, by, keyserver.Encryption{KeyChoice: choiceFrom(link, in.GetLine()), Plain: in.GetPlain(), Associated: in.GetAssociated()})
	if err != nil {
		return nil, err
	}
	return &peerpb.EncryptResponse{Sealed: sealed.Sealed, Link: []byte(sealed.Link), Generation: bytesOf(sealed.Generation)}, nil
}

// Decrypt implements peerpb.KeyServerServer.
func (s *Server) Decrypt(ctx context.Context, in *peerpb.DecryptRequest) (*peerpb.DecryptResponse, error) {
	by, link, err := s.caller(ctx, in.GetCall(), in.GetLink(), "decrypt", choiceTerm(in.GetLine()), in.GetSealed(), in.GetAssociated())
	if err == nil {
		err = textFits(in.GetSealed(), keyserver.MaxCiphertext, in.GetAssociated())
	}
	if err != nil {
		return nil, err
	}
	plain, err := s.keys.Decrypt(ctx, by, keyserver.Decryption{KeyChoice: choiceFrom(link, in.GetLine()), Sealed: in.GetSealed(), Associated: in.GetAssociated()})
	if err != nil {
		return nil, err
	}
	return &peerpb.DecryptResponse{Plain: plain.Plain, Link: []byte(plain.Link), Generation: bytesOf(plain.Generation)}, nil
}

func textFits(text []byte, most int, associated []byte) error {
	if len(text) > most || len(associated) > keyserver.MaxAssociated {
		return malformed("the text must have at most %d bytes, and its associated data at most %d", most, keyserver.MaxAssociated)
	}
	return nil
}

// choiceFrom returns a hidden link as the choice of a key lineage or of a key.
func choiceFrom(link keyserver.HiddenLink, line bool) keyserver.KeyChoice {
	if line {
		return keyserver.KeyChoice{Lineage: link}
	}
	return keyserver.KeyChoice{Key: link}
}

// choiceTerm returns the term of the call key that says whether the request names a lineage or a key.
func choiceTerm(line bool) []byte {
	if line {
		return []byte("line")
	}
	return []byte("key")
}
