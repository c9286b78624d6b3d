package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestTargetsThatAreRefused checks that Parse rejects invalid targets, and that the error contains no secret part of
// the URL.
func TestTargetsThatAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                                           "scheme",
		"hunter2":                                    "scheme",
		"http://siem.example":                        "scheme",
		"file:///hunter2":                            "scheme",
		"ht tp://hunter2":                            "not valid",
		"stdout://":                                  "stdout:",
		"stdout:hunter2":                             "stdout:",
		"https://":                                   "no host",
		"https:hunter2":                              "no host",
		"https://user@siem.example":                  "header-file",
		"https://:hunter2@siem":                      "header-file",
		"otlp://u:hunter2@siem:4317":                 "header-file",
		"stdout:u:hunter2@":                          "header-file",
		"https://siem/#hunter2":                      "#",
		"https://siem?token=hunter2":                 "ca, cert, key, header-file",
		"https://siem?ca=":                           "ca, cert, key, header-file",
		"https://siem?ca=a&ca=b":                     "each once",
		"https://siem?ca=%zz":                        "question mark",
		"https://siem?plaintext=true":                "ca, cert, key, header-file",
		"https://siem?cert=hunter2":                  "together",
		"https://siem?key=hunter2":                   "together",
		"https://siem/hunter2?key=a":                 "https://siem:",
		"https://siem/hunter2?x=a":                   "https://siem:",
		"syslog+tls://siem":                          "HOST:PORT",
		"syslog+tls://siem:6514/x":                   "HOST:PORT",
		"syslog+tls://siem:6514?header-file=hunter2": "ca, cert, key",
		"otlp://siem":                                "HOST:PORT",
		"otlp://siem:4317?plaintext=true":            "loopback",
		"otlp://127.0.0.1.siem:4317?plaintext=true":  "loopback",
		"otlp://127.0.0.1:4317?plaintext=yes":        "true",
		"otlp://127.0.0.1:4317?plaintext=true&ca=a":  "contradict",
	} {
		if _, err := Parse([]string{text}); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
	var many []string
	for i := range MaxTargets + 1 {
		many = append(many, fmt.Sprintf("https://siem%d", i))
	}
	if _, err := Parse(many); err == nil {
		t.Error("too many are let through")
	}
	if list, err := Parse(many[1:]); err != nil || len(list) != MaxTargets {
		t.Error(err)
	}
	if _, err := Parse([]string{"https://siem/hunter2?ca=x", "https://siem/hunter2?ca=y"}); err == nil || !strings.Contains(err.Error(), "twice") || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if _, err := Parse([]string{"https://siem/a", "https://SIEM/a"}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
	if _, err := Parse([]string{"otlp://LOCALHOST:4317?plaintext=true"}); err != nil {
		t.Error(err)
	}
	if list, err := Parse([]string{"https://siem/a?ca=x&header-file=y", "https://siem/b"}); err != nil || list[0].Name != "https://siem/a" {
		t.Error(list, err)
	}
}

// TestLabels checks that no label contains a path, and that each label is unique.
func TestLabels(t *testing.T) {
	list, err := Parse([]string{"https://siem/hunter2", "https://siem/hunter2/b?ca=x", "https://siem:8443/hunter2", "stdout:", "https://siem", "otlp://siem:4317"})
	rig.Must(t, err)
	var labels []string
	for _, target := range list {
		labels = append(labels, target.Label)
	}
	if want := []string{"https://siem", "https://siem (2)", "https://siem:8443", "stdout", "https://siem (3)", "otlp://siem:4317"}; !slices.Equal(labels, want) {
		t.Errorf("got %q, want %q", labels, want)
	}
}

// TestFilesThatAreRefused checks that errors do not contain the content of a file.
func TestFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		rig.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for query, says := range map[string]string{
		"ca=" + dir + "/none":         "ca cannot be read",
		"ca=" + dir:                   "ca cannot be read",
		"ca=" + file("ca", "hunter2"): "no PEM",
		"ca=" + file("damaged", "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----\n"+rig.NewCA(t, "good").PEM): "line 3",
		"ca=" + file("big", strings.Repeat("x", 1<<20+1)):                                                                     "more than",
		"cert=" + file("c", "hunter2") + "&key=" + file("k", "hunter2"):                                                       "not a PEM",
		"header-file=" + dir + "/none":                                                                                        "header-file cannot be read",
		"header-file=" + file("empty", ""):                                                                                    "NAME: VALUE",
		"header-file=" + file("bare", "hunter2\n"):                                                                            "NAME: VALUE",
		"header-file=" + file("long", "A: "+strings.Repeat("x", 16<<10)):                                                      "more than",
	} {
		list, err := Parse([]string{"https://siem?" + query})
		rig.Must(t, err)
		if err := list[0].Check(); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "https://siem:") {
			t.Errorf("%s: %v", query, err)
		}
	}
}
