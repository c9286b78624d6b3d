package script

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience bounds a wait for a server. Only a server that never responds reaches it.
const patience = 2 * time.Minute

type command = func(ts *testscript.TestScript, neg bool, args []string)

// scriptCommands are commands of the scripts in addition to those of testscript.
var scriptCommands = map[string]command{
	"answers":   answers,
	"api":       api,
	"exits":     exits,
	"flip":      flip,
	"follows":   follows,
	"hangup":    hangup,
	"idle":      idle,
	"json":      isJSON,
	"login":     login,
	"member":    member,
	"mode":      mode,
	"read":      read,
	"ready":     ready,
	"refused":   refused,
	"remember":  remember,
	"same":      same,
	"sql":       runSQL,
	"terminate": terminate,
	"untouched": untouched,
}

func usage(ts *testscript.TestScript, neg, ok bool, text string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// exits CODE COMMAND... runs a command. It fails unless the command ends with this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 1, "exits CODE COMMAND...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := run(ts, args[1:]); got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func run(ts *testscript.TestScript, args []string) (code int) {
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

// refused CODE PATTERN COMMAND... runs a command that must fail with this exit code. Its standard output must be empty.
// Its standard error, except for log records, must be one sentence that matches the pattern.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 2, "refused CODE PATTERN COMMAND...")
	exits(ts, false, append([]string{args[0]}, args[2:]...))
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("standard output is not empty: %q", out)
	}
	var sentences []string
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		if !strings.HasPrefix(line, "{") {
			sentences = append(sentences, line)
		}
	}
	pattern := regexp.MustCompile(`^(?:keyserver-(?:operator|agent|dev)|keyserverctl): .*` + args[1] + `.*\n$`)
	if len(sentences) != 1 || !pattern.MatchString(sentences[0]) {
		ts.Fatalf("want one sentence that matches %s, got %q", pattern, sentences)
	}
}

// ready waits until the server at $ADDR is ready.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "ready")
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		status, _, err := call(ts, http.MethodGet, "/api/ready", "")
		if err == nil && status == http.StatusOK {
			return
		}
		last = err
		for _, c := range ts.BackgroundCmds() {
			if errors.Is(c.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
				ts.Fatalf("the server has ended")
			}
		}
	}
	ts.Fatalf("nothing is ready at %s: %v", ts.Getenv("ADDR"), last)
}

// terminate sends SIGTERM to all background processes, as an orchestrator does. The command "wait" checks their exit
// codes.
func terminate(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "terminate")
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(syscall.SIGTERM))
	}
}

// hangup sends SIGHUP to all background processes.
func hangup(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 0, "hangup")
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(syscall.SIGHUP))
	}
}

// api METHOD PATH [BODY] calls the server at $ADDR with the session $SESSION and prints the status and the body of the
// response.
func api(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2 || len(args) == 3, "api METHOD PATH [BODY]")
	body := ""
	if len(args) == 3 {
		body = args[2]
	}
	status, answer, err := call(ts, args[0], args[1], body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d\n%s", status, answer)
}

// answers STATUS METHOD PATH repeats a call to the server at $ADDR until the response has this status, and prints as
// api does.
func answers(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 3, "answers STATUS METHOD PATH")
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		status, answer, err := call(ts, args[1], args[2], "")
		if err == nil && strconv.Itoa(status) == args[0] {
			fmt.Fprintf(ts.Stdout(), "%d\n%s", status, answer)
			return
		}
		last = fmt.Sprint(status, err)
	}
	ts.Fatalf("%s %s never answers %s; the last was %s", args[1], args[2], args[0], last)
}

// login NAME FILE opens a session with the password in the file, and sets $SESSION to its id.
func login(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "login NAME PASSWORD_FILE")
	body, err := json.Marshal(map[string]string{
		"method": "password", "name": args[0], "password": strings.TrimSpace(ts.ReadFile(args[1])),
	})
	ts.Check(err)
	status, answer, err := call(ts, http.MethodPost, "/api/sessions", string(body))
	ts.Check(err)
	var session struct{ SessionID string }
	if err := json.Unmarshal(answer, &session); err != nil || status != http.StatusOK || session.SessionID == "" {
		ts.Fatalf("the login is answered %d %s", status, answer)
	}
	ts.Setenv("SESSION", session.SessionID)
}

// call trusts only data/ca.crt.
func call(ts *testscript.TestScript, method, path, body string) (int, []byte, error) {
	pem, err := os.ReadFile(ts.MkAbs("data/ca.crt"))
	if err != nil {
		return 0, nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequest(method, "https://"+ts.Getenv("ADDR")+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if session := ts.Getenv("SESSION"); session != "" {
		req.Header.Set("Authorization", "Bearer "+session)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// member NAME VARIABLE sets a variable to a member of the last response that api printed.
func member(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "member NAME VARIABLE")
	_, answer, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
	var members map[string]any
	ts.Check(json.Unmarshal([]byte(answer), &members))
	value, ok := members[args[0]].(string)
	if !ok {
		ts.Fatalf("%q is no text in %s", args[0], answer)
	}
	ts.Setenv(args[1], value)
}

// read FILE VARIABLE sets a variable to the content of a file, without surrounding white space.
func read(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "read FILE VARIABLE")
	ts.Setenv(args[1], strings.TrimSpace(ts.ReadFile(args[0])))
}

// mode MODE FILE... fails unless the files have these permissions.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) > 1, "mode MODE FILE...")
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", filepath.Base(name), got, args[0])
		}
	}
}

// follows FILE PATTERN waits until a growing file has a line that matches.
func follows(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "follows FILE PATTERN")
	pattern := regexp.MustCompile(`(?m)` + args[1])
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if text, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && pattern.Match(text) {
			return
		}
	}
	ts.Fatalf("nothing in %s matches %s: %s", args[0], pattern, ts.ReadFile(args[0]))
}

// idle FROM N opens connections to the server at $ADDR from another address of this machine, and sends nothing until
// the script ends.
func idle(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "idle FROM N")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(args[0])}}
	for range n {
		conn, err := dialer.Dial("tcp", ts.Getenv("ADDR"))
		ts.Check(err)
		ts.Defer(func() { _ = conn.Close() })
	}
}

// flip FILE TEXT changes one bit of the first occurrence of the text in the file, as a faulty disk or an editor could.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 2, "flip FILE TEXT")
	path := ts.MkAbs(args[0])
	content, err := os.ReadFile(path)
	ts.Check(err)
	at := bytes.Index(content, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	content[at] ^= 1
	ts.Check(os.WriteFile(path, content, 0o600))
}

// json FILE fails unless the file, or stdout, contains exactly one JSON value.
func isJSON(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "json FILE")
	if !json.Valid([]byte(ts.ReadFile(args[0]))) {
		ts.Fatalf("%s is not JSON", args[0])
	}
}
