// Command asks is a workload that computes MACs without a pause. It reports how many of its requests failed, why and
// for how long, as a caller experiences a fault.
//
//	asks -key DIR -token FILE -until FILE [-workers N] [-retries N]
//	asks -key DIR -token FILE -until FILE -every DURATION
//	asks -agent SOCKET -lineage LINEAGE -until FILE [-workers N]
//
// DIR is the ConfigMap that a Key publishes: url, ca.crt and lineage. With -agent it calls the agent of its Pod,
// without a token, and repeats no request. With -every, a request begins at each interval even if earlier ones are in
// progress, so that slow requests do not hide failures. It ends when the file of -until exists, and prints one line of
// JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// maxWaiting is the maximum number of concurrent requests with -every.
const maxWaiting = 256

// pause is the time between two requests of a worker.
const pause = 10 * time.Millisecond

func main() {
	key := flag.String("key", "/etc/receipts-key", "directory with url, ca.crt and lineage")
	token := flag.String("token", "/var/run/secrets/keyserver/token", "file of the projected token")
	until := flag.String("until", "", "file whose coming ends the program")
	workers := flag.Int("workers", 2, "how many ask at once")
	retries := flag.Int("retries", -1, "how often a request is repeated; -1: never")
	every := flag.Duration("every", 0, "time from the beginning of a request to that of the next one, whether it was answered or not")
	agent := flag.String("agent", "", "unix socket of an agent, which is asked instead")
	lineage := flag.String("lineage", "", "line of keys that the agent is asked for")
	flag.Parse()
	if *until == "" || flag.NArg() > 0 {
		log.Fatal("asks: -until FILE is needed, and nothing but flags")
	}
	ask := throughAgent(*agent, *lineage)
	if *agent == "" {
		var err error
		if ask, err = direct(*key, *token, *retries); err != nil {
			log.Fatalf("asks: %v", err)
		}
	}
	if err := run(ask, *until, *workers, *every); err != nil {
		log.Fatalf("asks: %v", err)
	}
}

// asker computes one MAC.
type asker func(context.Context) error

// seen has the results of all requests.
type seen struct {
	mu     sync.Mutex
	Begun  time.Time      `json:"begun"`
	Asked  int            `json:"asked"`
	Failed int            `json:"failed"`
	First  float64        `json:"first"` // start of the first failed request, in seconds
	Last   float64        `json:"last"`  // start of the last failed request; Slow has its duration
	Slow   float64        `json:"slowest"`
	Why    map[string]int `json:"why"`
}

func run(ask asker, until string, workers int, every time.Duration) error {
	s := &seen{Begun: time.Now(), Why: map[string]int{}}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	once := func() {
		began := time.Now()
		s.note(began, ask(context.Background()))
	}
	if every > 0 {
		workers = 0
		all.Go(func() {
			waiting := make(chan struct{}, maxWaiting)
			for next := time.NewTicker(every); ctx.Err() == nil; <-next.C {
				waiting <- struct{}{}
				all.Go(func() { once(); <-waiting })
			}
		})
	}
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				once()
				time.Sleep(pause)
			}
		})
	}
	for {
		if _, err := os.Stat(until); err == nil {
			break
		}
		time.Sleep(pause)
	}
	stop()
	all.Wait()
	return json.NewEncoder(os.Stdout).Encode(s)
}

func direct(key, token string, retries int) (asker, error) {
	c, lineage, err := connect(key, token, retries)
	return func(ctx context.Context) error {
		_, err := c.MAC(ctx, lineage, strings.NewReader("message"))
		return err
	}, err
}

// throughAgent returns an asker that calls the agent, like a workload without credential code.
func throughAgent(socket, lineage string) asker {
	hc := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	body := fmt.Sprintf(`{"lineage":%q,"data":"bWVzc2FnZQ=="}`, lineage)
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/api/crypto/mac", strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := hc.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var said struct{ Code, MAC string }
		switch err := json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&said); {
		case err != nil:
			return err
		case said.MAC == "":
			return &client.Error{Code: said.Code}
		}
		return nil
	}
}

// connect makes a client. With retries it is the client that programs normally use. Without retries each
// request has a new connection, as for a new caller.
func connect(key, token string, retries int) (*client.Client, schema.HiddenLink, error) {
	read := func(name string) string {
		text, readErr := os.ReadFile(filepath.Join(key, name))
		if readErr != nil {
			log.Fatalf("asks: %v", readErr)
		}
		return strings.TrimSpace(string(text))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(read("ca.crt"))) {
		return nil, "", fmt.Errorf("%s/ca.crt has no certificate", key)
	}
	options := client.Options{
		BaseURL: read("url"), RootCAs: roots, Credentials: client.KubernetesCredentials(token), MaxRetries: retries,
	}
	if retries < 0 {
		options.RootCAs = nil
		options.HTTPClient = &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		}}
	}
	c, err := client.New(options)
	if err != nil {
		return nil, "", err
	}
	var lineage schema.HiddenLink
	return c, lineage, lineage.UnmarshalText([]byte(read("lineage")))
}

func (s *seen) note(began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Asked++
	s.Slow = max(s.Slow, time.Since(began).Seconds())
	if err == nil {
		return
	}
	at := began.Sub(s.Begun).Seconds()
	if s.Failed == 0 {
		s.First = at
	}
	s.First, s.Last = min(s.First, at), max(s.Last, at)
	s.Failed++
	s.Why[reason(err)]++
}

// reason returns the last part of an error, without the parts that differ between requests.
func reason(err error) string {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	text := err.Error()
	return text[strings.LastIndex(text, ": ")+1:]
}
