package supportbundle

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// logFields are the allowed attributes of a log line, in their output order. Three attributes of this project's log
// lines are omitted: "name" of a rejected login, because users type passwords as names; "session"; and "panic", which
// may quote a request.
var logFields = strings.Fields(`time level msg error err cause code detail why message
	requestId traceId method route status took principal peer remote keyServer operation part
	logger controller controllerGroup controllerKind namespace reconcileID object configMap rule action reason
	version cluster system url database address subject issuer notAfter certificateId digest
	sink log witness conflict cosigned problem table row key keys lineage generation dataKey retiring holds
	first last after upTo rows bytes from to was now changes changesSeen auditRows auditRowsSeen
	accepted limit atMost atOnce perSecond most left failures attempt retryIn next keep
	connections transactions sessions logins watched started released decided recovered replaced
	by followed ahead difference dir file mode feed before checkpoint id use stack stacktrace`)

// idFields are attributes that are packed only if the text is an id. In the log of another program it may be a key.
var idFields = []string{"id", "key", "keys", "lineage", "dataKey", "retiring"}

var (
	// frame matches a line about this project's code in a stack trace of Go.
	frame = regexp.MustCompile(`^\t(github\.com/keyserver-operator/keyserver-operator/[\w./-]+\.go:[0-9]+)(?: \+0x[0-9a-f]+)?$`)
	// failure matches the start of the error line that this project's programs print before they exit.
	failure = regexp.MustCompile(`^keyserver(?:-operator|-agent|-dev|ctl): `)
)

// mistake precedes the value of a panic in such an error line.
const mistake = "please report it: "

// namedLog returns the allowed parts of a log: attributes of JSON lines, error lines, and stack frames of this
// project's code. leftOut is the number of omitted lines and attributes.
func namedLog(raw []byte) (kept []byte, leftOut int) {
	for line := range bytes.Lines(raw) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			continue
		}
		out, left := namedLine(line)
		leftOut += left
		if len(out) > 0 {
			kept = append(append(kept, out...), '\n')
		}
	}
	return kept, leftOut
}

func namedLine(line []byte) (kept []byte, leftOut int) {
	switch {
	case line[0] == '\t':
		if place := frame.FindSubmatch(line); place != nil {
			return place[1], 0
		}
	case failure.Match(line):
		said, value, _ := strings.Cut(string(line), mistake)
		return []byte(urltext.Redact(said)), min(len(value), 1)
	}
	var all map[string]json.RawMessage
	if line[0] != '{' || json.Unmarshal(line, &all) != nil || !isOurs(all) {
		return nil, 1
	}
	leftOut = len(all)
	for _, key := range logFields {
		if value := attribute(key, all[key]); value != nil {
			leftOut--
			kept = member(kept, key, value)
		}
	}
	for _, kind := range v1beta1.Kinds {
		var of struct {
			Namespace redacted `json:"namespace,omitempty"`
			Name      redacted `json:"name"`
		}
		if raw := all[kind.Name]; raw != nil && json.Unmarshal(raw, &of) == nil {
			leftOut--
			kept = member(kept, kind.Name, of)
		}
	}
	return append(kept, '}'), leftOut
}

// isOurs reports whether a line has the attributes that log/slog adds to each line. Other programs that use log/slog
// have the same attributes.
func isOurs(line map[string]json.RawMessage) bool {
	var at time.Time
	var level slog.Level
	var message string
	return json.Unmarshal(line["time"], &at) == nil && !at.IsZero() &&
		json.Unmarshal(line["level"], &level) == nil &&
		json.Unmarshal(line["msg"], &message) == nil
}

func member(object []byte, key string, value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil {
		return object
	}
	between := byte(',')
	if len(object) == 0 {
		between = '{'
	}
	return append(append(append(append(object, between, '"'), key...), `":`...), encoded...)
}

// attribute returns the packed value of an attribute: a text, a list of texts, a number or a boolean. For an object or
// a missing attribute it returns nil.
func attribute(key string, raw json.RawMessage) any {
	switch {
	case len(raw) == 0 || raw[0] == '{':
		return nil
	case raw[0] == '[':
		var list []redacted
		if slices.Contains(idFields, key) || json.Unmarshal(raw, &list) != nil {
			return nil
		}
		return list
	case raw[0] != '"':
		return raw
	}
	var one string
	if json.Unmarshal(raw, &one) != nil {
		return nil
	}
	var id schema.HexID
	if slices.Contains(idFields, key) && id.UnmarshalText([]byte(one)) != nil {
		return nil
	}
	if key == "stack" || key == "stacktrace" {
		places := []string{}
		for line := range strings.SplitSeq(one, "\n") {
			if place := frame.FindStringSubmatch(line); place != nil {
				places = append(places, place[1])
			}
		}
		return places
	}
	return redacted(one)
}
