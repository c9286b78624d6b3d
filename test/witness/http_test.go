package witness

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// TestOneServerWitnessesAnother configures the witness by flags with addresses and keys.
func TestOneServerWitnessesAnother(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			log := open(t, database(t), func(c *server.Config) { c.InsecureHTTP = true })
			witness := open(t, database(t), func(c *server.Config) {
				c.InsecureHTTP, c.WitnessClients = true, []string{log.AuditKey().Key}
			})
			log.Stop(t)
			log.Restart(t, func(c *server.Config) {
				c.WitnessQuorum, c.Witnesses = 1, []string{witness.URL() + "/api/witness=" + witness.WitnessKey()}
			})
			db := log.database(t)
			for range 3 {
				before, _ := head(t, db, "cosigned")
				log.write(t, 3)
				until(t, "a cosigned checkpoint", func() bool {
					size, checkpoint := head(t, db, "cosigned")
					newest, same := head(t, db, "newest")
					return size > before && signed(t, checkpoint, witness.WitnessKey()) && newest == size && signed(t, same, witness.WitnessKey())
				})
			}
		})
	}
}
