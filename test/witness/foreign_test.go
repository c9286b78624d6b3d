package witness

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"testing"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/c2spwitness"
)

// TestAForeignWitness checks that the witness of transparency-dev cosigns successive checkpoints. It only gets the key
// of the log.
func TestAForeignWitness(t *testing.T) {
	log := open(t)
	at := c2spwitness.Start(t, log.AuditKey().Key)
	log.Stop(t)
	log.Restart(t, func(c *server.Config) { c.WitnessQuorum, c.Witnesses = 1, []string{at} })
	db := log.database(t)
	for range 3 {
		before, _ := head(t, db, "cosigned")
		log.write(t, 3)
		until(t, "a cosigned checkpoint", func() bool {
			size, checkpoint := head(t, db, "cosigned")
			return size > before && signed(t, checkpoint, keyOf(at))
		})
	}
}

// TestAForeignLog checks that a key server cosigns the checkpoints of a Tessera log. The log
// publishes none without the cosignature.
func TestAForeignLog(t *testing.T) {
	private, public, err := note.GenerateKey(rand.Reader, "tessera.example/log")
	rig.Must(t, err)
	signer, err := note.NewSigner(private)
	rig.Must(t, err)
	witness := open(t, func(c *server.Config) { c.InsecureHTTP, c.WitnessClients = true, []string{public} })

	at, err := url.Parse(witness.URL() + "/api/witness")
	rig.Must(t, err)
	w, err := tessera.NewWitness(witness.WitnessKey(), at)
	rig.Must(t, err)
	driver, err := posix.New(t.Context(), posix.Config{Path: t.TempDir()})
	rig.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	appender, shutdown, reader, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).WithBatching(1, 10*time.Millisecond).WithCheckpointInterval(100*time.Millisecond).
		WithWitnesses(tessera.NewWitnessGroup(1, w), nil))
	rig.Must(t, err)
	own, err := note.NewVerifier(public)
	rig.Must(t, err)
	cosigner, err := cosignature.NewVerifierForCosignatureV1(witness.WitnessKey())
	rig.Must(t, err)
	awaiter := tessera.NewPublicationAwaiter(ctx, reader.ReadCheckpoint, 50*time.Millisecond)
	for i := range 5 {
		_, checkpoint, err := awaiter.Await(ctx, appender.Add(ctx, tessera.NewEntry(fmt.Append(nil, "entry ", i))))
		rig.Must(t, err)
		if n, err := note.Open(checkpoint, note.VerifierList(own, cosigner)); err != nil || len(n.Sigs) != 2 {
			t.Fatalf("%v: %s", err, checkpoint)
		}
	}
	rig.Must(t, shutdown(ctx))
	logs, err := witness.Admin(t).GetWitness(t.Context())
	rig.Must(t, err)
	if l := logs.Logs[0]; l.Origin != "tessera.example/log" || l.Size < 5 || l.Conflict != "" {
		t.Errorf("%+v", l)
	}
}
