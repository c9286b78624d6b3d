package ctl

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// TestUnshowableIsNotSent checks that a command line whose response cannot be printed is rejected before a request is
// sent. Without a session, a request would give another exit code.
func TestUnshowableIsNotSent(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for line, want := range map[string]string{
		"keys mint --algorithm AES-256 --field nosuch":      "--field is \"nosuch\"; the response has ttag, ",
		"keys mint --algorithm AES-256 --field ttag.nosuch": "--field is \"ttag.nosuch\"; ttag has no members",
		"keys mint --algorithm AES-256 --columns ttag":      "--columns: the response is not a list",
		"keys list --field nosuch":                          "--field is \"nosuch\"; the response has count, keys, ",
		"keys list --columns nosuch -o json":                "--columns: there is no column \"nosuch\"; the columns are ",
		"whoami --field principal.nosuch":                   "--field is \"principal.nosuch\"; principal has ",
		"audit tail --field nosuch":                         "--field is \"nosuch\"; the response has seq, ",
		"audit tail --columns seq,nosuch":                   "--columns: there is no column \"nosuch\"; the columns are seq, ",
		"approvals list --field approvedBy.nosuch":          "approvedBy has id, ",
		"keys mint --algorithm AES-256 --field ttag -o xml": "--output is \"xml\"",
		"why --operation hmacData --field steps..":          "steps has ",
	} {
		cmd := theCommand(t)
		cmd.SetArgs(append(strings.Fields(line), "--server", "https://key.invalid"))
		err := cmd.Execute()
		var failure *cmdline.Failure
		if !errors.As(err, &failure) || failure.Code != cmdline.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want exit code %d and %q", line, err, cmdline.ExitUsage, want)
		}
	}
}

// TestFieldsWithin checks that the value at a path is printed once for each row and for each element.
func TestFieldsWithin(t *testing.T) {
	all := theTable(t)
	for _, c := range []struct{ verb, field, answer, want string }{
		{"sessions current get", "principal.id", `{"principal":{"id":"00000000000003e9"}}`, "00000000000003e9\n"},
		{"sessions current get", "principal", `{"principal":null}`, "null\n"},
		{"sessions current get", "principal.id", `{"principal":null}`, "\n"},
		{"approvals list", "asker.id", `{"approvals":[{"asker":{"id":"a"}},{"asker":{"id":"b"}}]}`, "a\nb\n"},
		{"approvals list", "count", `{"count":2,"approvals":[{},{}]}`, "2\n"},
		{"approvals get", "approvedBy.name", `{"approvedBy":[{"name":"x"},{"name":"y\u001b[1m"}]}`, "x\ny\ufffd[1m\n"},
		{"approvals get", "body.any.thing", `{"body":{"any":{"thing":7}}}`, "7\n"},
		{"trust local-info get", "trustBlob", `{"trustBlob":"2\tpeer\u001b[1m\t7\nMIID"}`, "2\tpeer\ufffd[1m\t7\ufffdMIID\n"},
	} {
		v := all.find(c.verb)
		of, _ := listed(v, nil)
		var out bytes.Buffer
		p := &printer{options: &options{field: c.field}, out: &out}
		if err := p.showable(&v.answer, of); err != nil {
			t.Errorf("%s --field %s: %v", c.verb, c.field, err)
		}
		if err := p.print(v, jsontext.Value(c.answer)); err != nil || out.String() != c.want {
			t.Errorf("%s --field %s prints %q, want %q: %v", c.verb, c.field, out.String(), c.want, err)
		}
	}
}

// TestWordsOfAServer checks that texts of a key server cannot control the terminal, even in unknown member names and in
// texts of several lines.
func TestWordsOfAServer(t *testing.T) {
	const planted = "evil\x1b]0;x\a\u202e\u3164\ufe0f" // the last two are invisible
	var out bytes.Buffer
	p := &printer{options: &options{output: asTable}, out: &out, notes: &out, width: widest}
	if err := p.print(theTable(t).find("sessions current get"), jsontext.Value(`{"evil\u001b]0;x\u0007\u202e\u3164":{"evil\u001b]0;x\u0007\u202e\u3164":"a\u115f"}}`)); err != nil {
		t.Fatal(err)
	}
	text := readable(&out)
	for _, part := range []string{"one\n" + planted, "\xe2\x82", "\xac\n"} {
		if _, err := io.WriteString(text, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := text.Close(); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); strings.ContainsAny(said, "\x1b\a\u202e\u3164\u115f\ufe0f") || !strings.HasSuffix(said, "one\nevil\ufffd]0;x\ufffd\ufffd\ufffd\ufffd€\n") || strings.Count(said, "evil") < 2 {
		t.Errorf("it says %q", said)
	}
}
