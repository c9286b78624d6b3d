package commands

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/audit"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// readHeads parses the values of --expect-head.
func readHeads(texts []string) ([]audit.Head, error) {
	var all []audit.Head
	for _, text := range texts {
		h, ok := readHead(text)
		if !ok {
			return nil, program.Usagef("--expect-head is %q; it must be CHAIN:POSITION:HASH, as audit verify prints a head", text)
		}
		all = append(all, h)
	}
	return all, nil
}

func readHead(text string) (h audit.Head, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return h, false
	}
	var err error
	if h.Chain, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
		return h, false
	}
	if h.Position, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return h, false
	}
	hash, err := hex.DecodeString(parts[2])
	copy(h.Hash[:], hash)
	return h, err == nil && len(hash) == len(h.Hash) && h.Chain > 0 && h.Position > 0
}
