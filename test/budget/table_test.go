package budget

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

var writeTable = flag.Bool("write", false, "TestBudget writes the table of costs instead of comparing it")

const (
	tableFile = "test/budget/budget.txt"
	remedy    = "run go test ./test/budget -write, and explain the change of " + tableFile + " in the commit"
)

// costs are the costs of one request, by column.
type costs [len(columns)]float64

// The columns of the table.
const (
	allocations = iota
	allocated
	reads
	writes
	connWrites
	journalWrites
	auditRows
	auditBytes
)

// columns describe the columns. A measured cost may differ from the table by the larger of absolute and the
// share relative. 40 runs passed, half of them with one busy loop for each processor. One additional allocation,
// system call or audit row of an HMAC fails.
var columns = [...]struct {
	name, unit         string
	absolute, relative float64
}{
	allocations:   {"allocations", "allocations", 0.5, 0.005},
	allocated:     {"bytes", "allocated bytes", 64, 0.01},
	reads:         {"reads", "read system calls", 0.25, 0.05},
	writes:        {"writes", "write system calls", 0.25, 0.05},
	connWrites:    {"conn-writes", "writes to the connection", 0.05, 0},
	journalWrites: {"journal-writes", "writes to the audit journal", 0.05, 0},
	auditRows:     {"audit-rows", "audit rows", 0.05, 0},
	auditBytes:    {"audit-bytes", "bytes in the audit journal", 0.5, 0},
}

// misses returns a sentence for each cost that does not agree with the table.
func (c costs) misses(want costs) (all []string) {
	for i, column := range columns {
		tolerance := max(column.absolute, column.relative*want[i])
		text := fmt.Sprintf("%.2f %s per request; %s has %.2f ± %.2f in column %s", c[i], column.unit, tableFile, want[i], tolerance, column.name)
		switch {
		case c[i] > want[i]+tolerance:
			all = append(all, text+"; reduce the costs, or "+remedy)
		case c[i] < want[i]-tolerance:
			all = append(all, text+"; to keep the lower costs, "+remedy)
		}
	}
	return all
}

// least returns the lower of two costs in each column.
func (c costs) least(other costs) costs {
	for i := range c {
		c[i] = min(c[i], other[i])
	}
	return c
}

// table is the content of budget.txt.
type table struct {
	comment string
	rows    map[string]costs
}

// path returns the file for a test, which runs in the directory of its package.
const path = "budget.txt"

func readTable(t *testing.T) table {
	t.Helper()
	text, err := os.ReadFile(path)
	rig.Must(t, err)
	read := table{rows: map[string]costs{}}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#") || len(fields) == 0:
			read.comment += line
			continue
		case names == nil:
			names = fields
			continue
		}
		if len(fields) != 1+len(columns) {
			t.Fatalf("%s: %q has %d fields, want %d; %s", tableFile, line, len(fields), 1+len(columns), remedy)
		}
		var row costs
		for i, field := range fields[1:] {
			row[i], err = strconv.ParseFloat(field, 64)
			rig.Must(t, err)
		}
		read.rows[fields[0]] = row
	}
	if !slices.Equal(names, header()) {
		t.Fatalf("%s has the columns %q, want %q", tableFile, names, header())
	}
	return read
}

// header returns the names of the columns.
func header() []string {
	names := []string{"request"}
	for _, column := range columns {
		names = append(names, column.name)
	}
	return names
}

// write writes the table with one row for each request, and keeps its comment.
func (b table) write(t *testing.T, requests []request) {
	t.Helper()
	var text bytes.Buffer
	text.WriteString(b.comment)
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(header(), "\t"))
	for _, r := range requests {
		fields := []string{r.name}
		for _, cost := range b.rows[r.name] {
			fields = append(fields, strconv.FormatFloat(math.Round(cost*100)/100, 'f', -1, 64))
		}
		fmt.Fprintln(w, strings.Join(fields, "\t"))
	}
	rig.Must(t, w.Flush())
	rig.Must(t, os.WriteFile(path, text.Bytes(), 0o600))
}
