// Package audit makes the audit log durable and tamper-evident. A Writer commits the row of an operation before the
// operation may have an effect. The rows of one writer form a hash chain. Verify checks the chains. The package
// contains no SQL: sqlstore implements Store and Reader.
//
//   - tree: the Merkle tree over all rows and its signed checkpoints
//   - journal: a file that makes rows durable before they are in SQLite
//   - witness: cosignatures; archive: full segments; sink: sends rows to other systems
//
// May import: clients/go/shared, internal/keyserver, internal/platform
package audit
