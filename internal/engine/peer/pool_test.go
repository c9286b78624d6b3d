package peer

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// TestAConnectionThatCannotBeMadeTakesNoCalls checks that calls use the other connection if one cannot be established.
// This includes streamed messages, which are not retried.
func TestAConnectionThatCannotBeMadeTakesNoCalls(t *testing.T) {
	w := newWorld(t, patience)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range connections { // the first call establishes a connection
		if _, err := w.ask().AuthorizeKey(ctx, caller(t), keyserver.Use{Link: link}); err != nil {
			t.Fatal(err)
		}
	}
	dead, err := grpc.NewClient("passthrough:///127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	p := w.held()
	if err := p.conns[0].Close(); err != nil {
		t.Fatal(err)
	}
	p.conns[0] = dead // p.close closes it
	dead.Connect()
	for s := dead.GetState(); s != connectivity.TransientFailure; s = dead.GetState() {
		if !dead.WaitForStateChange(ctx, s) {
			t.Fatalf("the connection is %s", s)
		}
	}
	for range 2 * connections {
		if _, err := w.ask().HMAC(ctx, caller(t), keyserver.HMACRequest{Link: link, Message: message{text: make([]byte, 3*pieceLen)}}); err != nil {
			t.Error(err)
		}
	}
}
