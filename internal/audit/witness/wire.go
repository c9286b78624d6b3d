package witness

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Limits of messages between a log and a witness.
const (
	MaxProof      = 63 // hashes, as in C2SP tlog-witness
	MaxCheckpoint = 8 << 10
	MaxRequest    = 16 << 10
)

// Request is the request of a log to a witness.
type Request struct {
	Old        int64          // the size that the witness has cosigned last, as far as the log knows
	Proof      tlog.TreeProof // the proof that the checkpoint continues the tree of size Old
	Checkpoint []byte
}

// Marshal encodes a request in the format of C2SP tlog-witness.
func (r Request) Marshal() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "old %d\n", r.Old)
	for _, h := range r.Proof {
		fmt.Fprintf(&b, "%s\n", h)
	}
	b.WriteByte('\n')
	b.Write(r.Checkpoint)
	return b.Bytes()
}

// ParseRequest decodes the output of Marshal. It fails with BAD_REQUEST.
func ParseRequest(body []byte) (r Request, err error) {
	bad := fault.New(fault.BadRequest, `body: must be "old", a space and a size, up to %d lines of a consistency proof, an empty line and a checkpoint, as C2SP tlog-witness has it`, MaxProof)
	first, rest, found := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(first), "\n")
	size, ok := strings.CutPrefix(lines[0], "old ")
	if !found || !ok || len(lines) > 1+MaxProof || len(rest) > MaxCheckpoint || !bytes.Contains(rest, []byte("\n\n")) {
		return Request{}, bad
	}
	if r.Old, err = parseSize(size); err != nil {
		return Request{}, bad
	}
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return Request{}, bad
		}
		r.Proof = append(r.Proof, h)
	}
	r.Checkpoint = bytes.Clone(rest)
	return r, nil
}

func parseSize(s string) (int64, error) {
	size, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(size, 10) != s || size < 0 {
		return 0, fmt.Errorf("%q is not a size", bounded(s))
	}
	return size, nil
}

func sortLogs(list []keyserver.WitnessedLog) {
	slices.SortFunc(list, func(a, b keyserver.WitnessedLog) int { return strings.Compare(a.Origin, b.Origin) })
}
