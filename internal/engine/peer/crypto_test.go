package peer

import (
	"bytes"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer/peerpb"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// TestMACsAndTextsArrive checks that the peer receives the message, the MAC to verify, and the choice of key or
// lineage, for short and long messages.
func TestMACsAndTextsArrive(t *testing.T) {
	w := newWorld(t, time.Minute)
	link := values.NewHiddenLink(2, values.IDFromUint64(5))
	var mac [keyserver.MACSize]byte
	mac[0], mac[47] = 1, 2
	used := keyserver.UsedKey{Link: link, Generation: 3}
	for _, choice := range []keyserver.KeyChoice{{Key: link}, {Lineage: link}} {
		for _, length := range []int{0, 100, pieceLen, pieceLen + 1, 300_000} {
			text := bytes.Repeat([]byte{9}, length)
			v, err := w.ask().VerifyMAC(t.Context(), caller(t), keyserver.MACCheck{
				KeyChoice: choice, Message: message{text: text}, MAC: func() [keyserver.MACSize]byte { return mac },
			})
			if err != nil || !v.Valid || v.UsedKey != used || w.keys.mac != mac || w.keys.choice != choice || !bytes.Equal(w.keys.heard, text) {
				t.Errorf("%d bytes of %v: %+v, %v", length, choice, v, err)
			}
			m, err := w.ask().MAC(t.Context(), caller(t), keyserver.MACRequest{Lineage: link, Message: message{text: text}})
			if err != nil || m.Sum[0] != 1 || m.UsedKey != used || w.keys.choice.Lineage != link || !bytes.Equal(w.keys.heard, text) {
				t.Errorf("%d bytes: %+v, %v", length, m.UsedKey, err)
			}
		}
		plain, associated := make([]byte, keyserver.MaxPlain), make([]byte, keyserver.MaxAssociated)
		c, err := w.ask().Encrypt(t.Context(), caller(t), keyserver.Encryption{KeyChoice: choice, Plain: plain[:keyserver.MaxPlain-100], Associated: associated[:50]})
		if err != nil || c.UsedKey != used || w.keys.choice != choice || len(c.Sealed) != keyserver.MaxPlain-100+50+6 {
			t.Errorf("encrypted %d bytes, %v", len(c.Sealed), err)
		}
		p, err := w.ask().Decrypt(t.Context(), caller(t), keyserver.Decryption{KeyChoice: choice, Sealed: plain[:keyserver.MaxPlain-100], Associated: associated[:50]})
		if err != nil || p.UsedKey != used || len(p.Plain) != keyserver.MaxPlain-50 {
			t.Errorf("decrypted %d bytes, %v", len(p.Plain), err)
		}
		_, err = w.ask().Encrypt(t.Context(), caller(t), keyserver.Encryption{KeyChoice: choice, Plain: make([]byte, len(plain)+1)})
		code(t, err, fault.InvalidArgument)
		_, err = w.ask().Decrypt(t.Context(), caller(t), keyserver.Decryption{KeyChoice: choice, Sealed: plain, Associated: make([]byte, len(associated)+1)})
		code(t, err, fault.InvalidArgument)
	}
}

// TestKeysThatWereNotAskedFor checks that a response is rejected if the request cannot have used its key.
func TestKeysThatWereNotAskedFor(t *testing.T) {
	w := newWorld(t, time.Minute)
	link := values.NewHiddenLink(2, values.IDFromUint64(5))
	for name, lie := range map[string]func(*keyserver.UsedKey){
		"NoLink":       func(u *keyserver.UsedKey) { u.Link = "" },
		"OtherSystem":  func(u *keyserver.UsedKey) { u.Link = values.NewHiddenLink(3, values.IDFromUint64(5)) },
		"OtherKey":     func(u *keyserver.UsedKey) { u.Link = values.NewHiddenLink(2, values.IDFromUint64(6)) },
		"NoGeneration": func(u *keyserver.UsedKey) { u.Generation = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			w.keys.lie = lie
			_, err := w.ask().Encrypt(t.Context(), caller(t), keyserver.Encryption{KeyChoice: keyserver.KeyChoice{Key: link}})
			code(t, err, fault.OpFailed)
		})
	}
}

// TestStreamsWithoutAMAC checks that nothing is verified if the last piece has no MAC or a MAC of a wrong length.
func TestStreamsWithoutAMAC(t *testing.T) {
	w := newWorld(t, time.Minute)
	c := peerpb.NewKeyServerClient(w.raw(t, w.clientID))
	link := values.NewHiddenLink(2, values.IDFromUint64(5))
	for _, mac := range [][]byte{nil, make([]byte, 47), make([]byte, 49)} {
		stream, err := c.VerifyMACStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, piece := range []*peerpb.HMACPiece{{Call: callOf(caller(t)), Link: []byte(link)}, {Data: []byte("text"), Last: true, Mac: mac}} {
			if err := stream.Send(piece); err != nil {
				t.Fatal(err)
			}
		}
		_, err = stream.CloseAndRecv()
		if r := refusalIn(err); r == nil || r.GetCode() != string(fault.InvalidArgument) {
			t.Errorf("a MAC of %d bytes: %v", len(mac), err)
		}
		_, err = c.VerifyMAC(t.Context(), &peerpb.VerifyMACRequest{Call: callOf(caller(t)), Link: []byte(link), Mac: mac})
		if r := refusalIn(err); r == nil || r.GetCode() != string(fault.InvalidArgument) {
			t.Errorf("a MAC of %d bytes: %v", len(mac), err)
		}
	}
}
