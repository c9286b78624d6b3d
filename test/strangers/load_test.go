package strangers

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// sender sends the same request on many connections. On each, it sends the next request after the response.
type sender struct {
	Connections                 int
	DataDir, Address            string
	Method, Path, Session, Body string
	Status                      int
	Handshakes                  bool // only open and close TLS connections
	Connects                    bool // only open and reset TCP connections
	// Packet is the number of requests that each connection sends in one packet, before it reads the responses: as
	// streams with HTTP2, otherwise pipelined (RFC 9112 section 9.3.2). Zero sends single requests.
	Packet int
	HTTP2  bool
}

// senderVariable is set in a process that runs the sender that it reads from standard input.
const senderVariable = "STRANGERS_SENDER"

func runSender() error {
	var s sender
	if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
		return err
	}
	return s.run()
}

// run sends until standard input ends. It prints the number of responses twice: when each connection has had
// one, and at the end.
func (s sender) run() error {
	roots, err := program.Roots(s.DataDir)
	if err != nil {
		return err
	}
	over := program.Transport(roots, func() string { return s.Address })
	over.MaxIdleConnsPerHost = s.Connections
	var answers atomic.Int64
	var first sync.WaitGroup
	first.Add(s.Connections)
	failed := make(chan error, s.Connections)
	for range s.Connections {
		go func() {
			started := sync.OnceFunc(first.Done)
			answered := func() {
				answers.Add(1)
				started()
			}
			for {
				if s.Packet > 0 {
					_ = s.sendPackets(over.TLSClientConfig, answered) // until the server closes the connection
					continue
				}
				if status := s.send(over); status != s.Status {
					failed <- errors.New(http.StatusText(status))
					return
				}
				answered()
			}
		}()
	}
	go func() {
		first.Wait()
		fmt.Println(answers.Load())
	}()
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	select {
	case err = <-failed:
	case <-ended:
		_, err = fmt.Println(answers.Load())
	}
	return err
}

// send sends one request and returns the status. It sends the request again if the server closes the
// connection.
func (s sender) send(over *http.Transport) int {
	for {
		if s.Handshakes {
			if conn, err := tls.Dial("tcp", s.Address, over.TLSClientConfig); err == nil {
				_ = conn.Close()
				return s.Status
			}
			continue
		}
		if s.Connects {
			if conn, err := net.Dial("tcp", s.Address); err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0) // so that the port can be reused immediately
				_ = conn.Close()
				return s.Status
			}
			continue
		}
		r, err := http.NewRequest(s.Method, program.BaseURL+s.Path, strings.NewReader(s.Body))
		if err != nil {
			return 0
		}
		if s.Session != "" {
			r.Header.Set("Authorization", "Bearer "+s.Session)
		}
		r.Header.Set("Content-Type", "application/json")
		if a, err := over.RoundTrip(r); err == nil {
			_, err = io.Copy(io.Discard, a.Body)
			if errors.Join(err, a.Body.Close()) == nil {
				return a.StatusCode
			}
		}
	}
}

// begin runs the sender in another process, because inside the test process it would delay the honest client.
// It returns when each connection has had a response. stop ends the process and returns the number of responses
// per second since then.
func (s sender) begin(t testing.TB) (stop func() (perSecond float64)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(program.Environment(), senderVariable+"=yes")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	in, err := cmd.StdinPipe()
	rig.Must(t, err)
	rig.Must(t, cmd.Start())
	rig.Must(t, json.NewEncoder(in).Encode(s))
	var before, after float64
	_, err = fmt.Fscan(out, &before)
	rig.Must(t, err)
	begun := time.Now()
	return func() float64 {
		took := time.Since(begun)
		_ = in.Close()
		_, err := fmt.Fscan(out, &after)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			t.Errorf("%s %s: %v", s.Method, s.Path, err)
		}
		perSecond := (after - before) / took.Seconds()
		t.Logf("%d connections: %.0f answers/s", s.Connections, perSecond)
		return perSecond
	}
}
