package bench

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
)

// peerVariable makes this test binary run as the reference server.
const peerVariable = "BENCH_PEER"

// peer is a bare net/http server in a separate process, with the same TLS as the program. It shows the current speed of
// the machine.
type peer struct {
	address string
	plain   string // without TLS
	cmd     *exec.Cmd
	in      io.Closer
}

func startPeer() (*peer, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the peer says nothing: %w", err), p.close())
	}
	p.address, p.plain, _ = strings.Cut(strings.TrimSpace(line), " ")
	return p, nil
}

// close closes the input of the peer, which makes it end.
func (p *peer) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }

// servePeer is the main function of the peer. It serves the same with and without TLS.
func servePeer() error {
	certificate, err := ownCertificate()
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}})
	if err != nil {
		return err
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /echo", echo)
	mux.HandleFunc("POST /discard", discard)
	fmt.Println(l.Addr(), rawhttp.PlainPrefix+plain.Addr().String())
	failed := make(chan error, 1)
	for _, l := range []net.Listener{l, plain} {
		go func() { failed <- (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l) }()
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

// echo is a minimal JSON service: decode, encode.
func echo(w http.ResponseWriter, r *http.Request) {
	var message struct {
		HiddenLink string `json:"hiddenLink"`
		Data       string `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := json.Marshal(message)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, out)
}

// discard reads the body and discards it.
func discard(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, strconv.AppendInt(nil, n, 10))
}

func answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error cannot be reported to the client
}

// ownCertificate returns a certificate with a key of the program's type.
func ownCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
