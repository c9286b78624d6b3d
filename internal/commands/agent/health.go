package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Paths of the probes, at the address of /api and at --health-listen.
const (
	livePath  = "/livez"
	readyPath = "/readyz"
	// checkTime limits the time of a check.
	checkTime = 2 * time.Second
	// maxProbe limits the size of a probe's response in bytes.
	maxProbe = 64 << 10
)

// health serves the probes. /livez shows that the process runs. /readyz shows that the key server accepted the session
// at the last request.
func (a *Agent) health(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != livePath && r.URL.Path != readyPath {
		refusalOf(fault.New(fault.NotFound, "there is no such path; use %s or %s", livePath, readyPath)).write(w)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refusalOf(fault.New(fault.MethodNotAllowed, "the path does not allow this method; use GET or HEAD")).write(w)
		return
	}
	if r.URL.Path == readyPath {
		if not := a.gate.ready(); not != nil {
			not.write(w)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, `{"status":"ok"}`+"\n") // the client may be gone
}

// Check returns an error unless the agent at an address is ready. Exec probes of containers use it, because other
// probes cannot reach a socket.
func Check(ctx context.Context, listen string) error {
	at, err := parseAddress(listen, DefaultSocketMode)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if at.socket != "" {
			return (&net.Dialer{}).DialContext(ctx, "unix", at.socket)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", at.port)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+readyPath, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("no agent responds at %s: %w", listen, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxProbe))
	if err != nil || resp.StatusCode == http.StatusOK {
		return err
	}
	var said schema.Error
	if json.Unmarshal(text, &said) != nil || said.Code == "" {
		return fmt.Errorf("the server at %s is not an agent: it responds with status %d", listen, resp.StatusCode)
	}
	return errors.New("not ready: " + said.Code + ": " + said.Detail)
}
