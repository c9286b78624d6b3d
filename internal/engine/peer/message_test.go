package peer

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestMessages checks that messages of any length arrive unchanged.
func TestMessages(t *testing.T) {
	w := newWorld(t, patience)
	for _, length := range []int{0, 1, pieceLen - 1, pieceLen, pieceLen + 1, 2 * pieceLen, 10*pieceLen + 7} {
		text := make([]byte, length)
		for i := range text {
			text[i] = byte(i * 31)
		}
		mac, err := w.ask().HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: text}})
		if err != nil || mac[0] != 1 || !bytes.Equal(w.keys.heard, text) {
			t.Errorf("%d bytes: heard %d, %v", length, len(w.keys.heard), err)
		}
	}
}

// TestMalformedMessages checks that a message with an error causes its own fault. The peer never treats a part of the
// message as complete.
func TestMalformedMessages(t *testing.T) {
	bad := fault.New(fault.BadRequest, "data: is not base64")
	for name, length := range map[string]int{"Short": 10, "Long": 5 * pieceLen} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, patience)
			_, err := w.ask().HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, length), err: bad}})
			if !errors.Is(err, bad) {
				t.Errorf("got %v", err)
			}
			if _, err := w.ask().AuthorizeKey(t.Context(), caller(t), keyserver.Use{Link: link}); err != nil { // the stream may end before or after this call
				t.Error(err)
			}
			if w.keys.heard != nil {
				t.Errorf("the peer took %d bytes for a message", len(w.keys.heard))
			}
		})
	}
}

// TestRefusedMessages checks that a refusal ends a long message early, with its code.
func TestRefusedMessages(t *testing.T) {
	w := newWorld(t, patience)
	w.keys.answer = func(context.Context, keyserver.Caller) error {
		return fault.New(fault.ACLDenied, "no").Audited(fault.ReasonACLDenied)
	}
	for _, length := range []int{10, 2 * pieceLen, 200 * pieceLen} {
		_, err := w.ask().HMAC(t.Context(), caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, length)}})
		if f := code(t, err, fault.ACLDenied); f.Reason != fault.ReasonACLDenied {
			t.Errorf("%d bytes: %v", length, f.Reason)
		}
	}
	if n := len(w.client.pools[2].places); n != 0 {
		t.Errorf("%d places are still taken", n)
	}
}

// TestBrokenMessages checks that a stream without a last piece is not treated as a message.
func TestBrokenMessages(t *testing.T) {
	w := newWorld(t, patience)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	by := caller(t)
	first := &peerpb.HMACPiece{Call: callOf(by), Link: []byte(link)}
	for name, rest := range map[string][]*peerpb.HMACPiece{
		"NoPiece": nil, "NoLast": {{Data: []byte("half")}},
		"TooLong": tooLong(),
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := c.HMACStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, piece := range append([]*peerpb.HMACPiece{first}, rest...) {
				if stream.Send(piece) != nil {
					break // CloseAndRecv returns the reason
				}
			}
			_, err = stream.CloseAndRecv()
			if r := refusalIn(err); r == nil || r.GetCode() != string(fault.InvalidArgument) {
				t.Errorf("got %v", err)
			}
			if w.keys.heard != nil {
				t.Errorf("%d bytes were taken for a message", len(w.keys.heard))
			}
		})
	}
}

// TestFirstPackageHasNoPiece checks that data in the first package is rejected, not ignored.
func TestFirstPackageHasNoPiece(t *testing.T) {
	w := newWorld(t, patience)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, extra := range map[string]*peerpb.HMACPiece{"Data": {Data: []byte("hello ")}, "Last": {Last: true}} {
		t.Run(name, func(t *testing.T) {
			stream, err := c.HMACStream(ctx)
			if err != nil {
				t.Fatal(err)
			}
			extra.Call, extra.Link = callOf(caller(t)), []byte(link)
			if err := stream.Send(extra); err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(&peerpb.HMACPiece{Data: []byte("world"), Last: true}) // fails if the response has already arrived
			_, err = stream.CloseAndRecv()
			if r := refusalIn(err); r == nil || r.GetCode() != string(fault.InvalidArgument) || w.keys.heard != nil {
				t.Errorf("got %v, heard %q", err, w.keys.heard)
			}
		})
	}
}

func tooLong() []*peerpb.HMACPiece {
	piece := &peerpb.HMACPiece{Data: make([]byte, pieceLen)}
	var all []*peerpb.HMACPiece
	for n := 0; n <= keyserver.MaxMessage; n += len(piece.GetData()) {
		all = append(all, piece)
	}
	return append(all, &peerpb.HMACPiece{Last: true})
}
