// Command c2sp-witness is the witness of transparency-dev, for tests. It cosigns the
// checkpoints of logs whose keys are its arguments, and stores nothing.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// run prints the URL and the key of the witness in the form of --witness, and serves.
func run(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return errors.New("name the key of a log, as C2SP signed-note spells it")
	}
	logs := map[string]note.Verifier{}
	for _, key := range keys {
		v, err := note.NewVerifier(key)
		if err != nil {
			return err
		}
		logs[v.Name()] = v
	}
	private, public, err := note.GenerateKey(rand.Reader, "c2sp.example/witness")
	if err != nil {
		return err
	}
	if public, err = cosignature.VKeyToCosignatureV1(public); err != nil {
		return err
	}
	signer, err := cosignature.NewSignerForCosignatureV1(private)
	if err != nil {
		return err
	}
	w, err := witness.New(ctx, witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			v, ok := logs[origin]
			return v, ok, nil
		},
	})
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	fmt.Printf("http://%s=%s\n", listener.Addr(), public)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}
