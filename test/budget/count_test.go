package budget

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// count returns the costs of the process since its start, without those of the journal and of the client's system
// calls.
func (s *served) count(t *testing.T) (c costs) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	rig.Must(t, err)
	for line := range strings.Lines(string(text)) {
		var name string
		var n int
		_, err := fmt.Sscanf(line, "%s %d", &name, &n)
		rig.Must(t, err)
		switch name {
		case "syscr:":
			c[reads] = float64(n - s.counted.reads)
		case "syscw:":
			c[writes] = float64(n - s.counted.writes)
		}
	}
	c[connWrites] = float64(s.counted.records)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c[allocations], c[allocated] = float64(m.Mallocs), float64(m.TotalAlloc)
	return c
}

// recordHeader is the length of the header of a TLS record (RFC 8446 section 5.1).
const recordHeader = 5

// countedConn counts the system calls of the client's end, and the TLS records that the server sends. The server writes
// each record with one system call.
type countedConn struct {
	net.Conn
	reads, writes, records int

	header [recordHeader]byte // of the current record
	have   int                // received bytes of header
	skip   int                // remaining payload bytes of the previous record
}

// Write implements net.Conn.
func (c *countedConn) Write(p []byte) (int, error) {
	c.writes++
	return c.Conn.Write(p)
}

// Read implements net.Conn.
func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.reads++
	for p = p[:n]; len(p) > 0; {
		if c.skip > 0 {
			skipped := min(c.skip, len(p))
			c.skip, p = c.skip-skipped, p[skipped:]
			continue
		}
		copied := copy(c.header[c.have:], p)
		c.have, p = c.have+copied, p[copied:]
		if c.have == recordHeader {
			c.records++
			c.have, c.skip = 0, int(c.header[3])<<8|int(c.header[4])
		}
	}
	return n, err
}

// journalReader reads the audit journal of a running server.
type journalReader struct {
	dir string
	id  journal.ID
	end journal.Position // of the groups that were read
}

func openJournal(t *testing.T, dir string) *journalReader {
	t.Helper()
	content, err := journal.Load(dir)
	rig.Must(t, err)
	return &journalReader{dir: dir, id: content.ID, end: journal.Start}
}

// advance returns the costs of the journal since the previous call, without those of reading the audit log. No request
// may be in progress.
func (j *journalReader) advance(t *testing.T) (c costs) {
	t.Helper()
	content, err := journal.Load(j.dir)
	rig.Must(t, err)
	groups, err := content.Groups(j.id, j.end)
	rig.Must(t, err)
	for _, g := range groups {
		rows, err := audit.ReadRecords(nil, g.Bytes)
		rig.Must(t, err)
		j.end = g.End
		if rows[0].Operation == keyserver.OpReadAudit.Key {
			continue
		}
		c[journalWrites]++
		c[auditRows] += float64(len(rows))
		c[auditBytes] += float64(len(g.Bytes))
	}
	return c
}
