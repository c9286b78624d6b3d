package sink

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// MaxTargets is the maximum number of sinks of a process.
const MaxTargets = 8

// Target is the destination of rows, parsed from a URL.
type Target struct {
	// Name is the URL without its query. It identifies the sink in the database. The path
	// may be secret, so Name is not shown anywhere else.
	Name string
	// Label is the scheme and the host of the URL, for metrics, logs and errors. If several targets have the same host,
	// the second label has the suffix " (2)", the third " (3)".
	Label string

	place   string // Name with a lower-case host
	scheme  string
	address string // host and port; for https the entire Name
	files
	plaintext bool
}

// schemes maps each URL scheme to its query parameters.
var schemes = map[string][]string{
	"stdout":     nil,
	"https":      {"ca", "cert", "key", "header-file"},
	"syslog+tls": {"ca", "cert", "key"},
	"otlp":       {"ca", "cert", "key", "header-file", "plaintext"},
}

// Parse parses the URLs of sinks. Its errors do not quote a URL, because it may contain a secret by mistake.
func Parse(list []string) ([]Target, error) {
	if len(list) > MaxTargets {
		return nil, fmt.Errorf("there are %d URLs; at most %d are allowed", len(list), MaxTargets)
	}
	var targets []Target
	for _, text := range list {
		t, err := parse(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(targets, func(other Target) bool { return other.place == t.place }) {
			return nil, fmt.Errorf("%s is given twice with the same path; remove one", t.Label)
		}
		t.number(targets)
		targets = append(targets, t)
	}
	return targets, nil
}

// number adds a number to the label if earlier targets have the same host.
func (t *Target) number(before []Target) {
	bare := t.Label
	for n := 2; slices.ContainsFunc(before, func(other Target) bool { return other.Label == t.Label }); n++ {
		t.Label = fmt.Sprintf("%s (%d)", bare, n)
	}
}

func parse(text string) (Target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Target{}, errors.New("a URL is not valid; use stdout:, https://HOST/PATH, syslog+tls://HOST:PORT or otlp://HOST:PORT")
	}
	allowed, known := schemes[u.Scheme]
	switch {
	case !known:
		return Target{}, errors.New("the scheme of a URL is not known; use stdout:, https://HOST/PATH, syslog+tls://HOST:PORT or otlp://HOST:PORT")
	case u.User != nil || strings.Contains(u.Opaque, "@"):
		return Target{}, fmt.Errorf("the %s URL must not contain a user or a password; put the credentials into a file, and name the file with header-file or key", u.Scheme)
	case u.Fragment != "":
		return Target{}, fmt.Errorf("the %s URL must not have a part after #; remove it", u.Scheme)
	case u.Scheme == "stdout":
		if text != "stdout:" {
			return Target{}, errors.New("a URL for standard output must be stdout: without a path")
		}
		return Target{Name: "stdout", Label: "stdout", place: "stdout", scheme: "stdout"}, nil
	case u.Hostname() == "" || u.Opaque != "":
		return Target{}, fmt.Errorf("the %s URL has no host; add one", u.Scheme)
	case u.Scheme != "https" && (u.Port() == "" || u.Path != ""):
		return Target{}, fmt.Errorf("the %s URL must have the form %s://HOST:PORT, without a path", u.Scheme, u.Scheme)
	}
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	t := Target{Name: name.String(), Label: urltext.Origin(text), scheme: u.Scheme, address: u.Host}
	name.Host = strings.ToLower(u.Host)
	t.place = name.String()
	if t.scheme == "https" {
		t.address = t.Name
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Target{}, fmt.Errorf("%s: the part after the question mark is not valid", t.Label)
	}
	for key, values := range query {
		if !slices.Contains(allowed, key) || len(values) != 1 || values[0] == "" {
			return Target{}, fmt.Errorf("%s: the parameters after the question mark may be, each once and not empty: %s", t.Label, strings.Join(allowed, ", "))
		}
	}
	t.files = files{ca: query.Get("ca"), cert: query.Get("cert"), key: query.Get("key"), header: query.Get("header-file")}
	if (t.cert == "") != (t.key == "") {
		return Target{}, fmt.Errorf("%s: cert and key belong together; give both or neither", t.Label)
	}
	if plaintext := query.Get("plaintext"); plaintext != "" {
		ip := net.ParseIP(u.Hostname())
		switch {
		case plaintext != "true":
			return Target{}, fmt.Errorf("%s: plaintext must be true; otherwise remove it", t.Label)
		case !strings.EqualFold(u.Hostname(), "localhost") && (ip == nil || !ip.IsLoopback()):
			return Target{}, fmt.Errorf("%s: plaintext=true requires a loopback host; remove it, or use localhost", t.Label)
		case t.ca != "" || t.cert != "":
			return Target{}, fmt.Errorf("%s: plaintext=true and certificates contradict each other; remove one", t.Label)
		}
		t.plaintext = true
	}
	return t, nil
}

// Check reads the files of a target, so that a wrong path is reported when the key server starts.
func (t Target) Check() error {
	_, err := t.tls()
	if err == nil {
		_, err = t.headers()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.Label, err)
	}
	return nil
}

func (t Target) open(c Config) (receiver, error) {
	switch t.scheme {
	case "stdout":
		return c.Out, nil
	case "syslog+tls":
		return openSyslog(t, c.Source)
	case "otlp":
		return openOTLP(t, c.Source)
	default:
		return openCloudEvents(t)
	}
}
