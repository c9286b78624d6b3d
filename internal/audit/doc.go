// Package audit makes the audit log durable and tamper-evident. A Writer commits each row before the operation that it
// records may have an effect. The rows of one writer form a hash chain. Verify checks the chains. The package knows no
// SQL: sqlstore implements Store and Reader.
//
//   - tree: the Merkle tree over all rows and its signed checkpoints
//   - journal: a file that makes rows durable before they are in SQLite
//   - witness: cosignatures; archive: full segments; sink: sends rows to other systems
//
// May import: clients/go/shared, internal/keyserver, internal/platform
package audit
