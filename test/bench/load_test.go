package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is one request in its wire format, and the only correct response.
type exchange struct {
	request []byte
	answer  []byte // nil: any
}

// post returns a request for a persistent connection.
func post(path, token string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, len(body))
	if token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", token)
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// load is a fixed number of persistent connections to one server. It uses as little CPU time as
// possible, because it runs on the server's cores.
type load struct{ conns []*conn }

type conn struct {
	net  net.Conn
	in   *bufio.Reader
	body []byte
}

// plainPrefix precedes the address of a server without TLS.
const plainPrefix = "http://"

func dial(address string, conns int) (*load, error) {
	l := &load{}
	for range conns {
		c, err := connect(address)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.conns = append(l.conns, &conn{net: c, in: bufio.NewReaderSize(c, 4<<10)})
	}
	return l, nil
}

func connect(address string) (net.Conn, error) {
	if host, plain := strings.CutPrefix(address, plainPrefix); plain {
		return net.Dial("tcp", host)
	}
	// Other tests check the certificate; here only the work counts.
	return tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
}

func (l *load) close() error {
	var errs []error
	for _, c := range l.conns {
		if err := c.net.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// run makes n exchanges on all connections concurrently, and appends the duration of each.
func (l *load) run(n int, x exchange, took []time.Duration) ([]time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	times := make([][]time.Duration, len(l.conns))
	errs := make([]error, len(l.conns))
	var group sync.WaitGroup
	for i, c := range l.conns {
		group.Go(func() {
			for left.Add(-1) >= 0 && errs[i] == nil {
				start := time.Now()
				errs[i] = c.do(x)
				times[i] = append(times[i], time.Since(start))
			}
		})
	}
	group.Wait()
	return append(took, slices.Concat(times...)...), errors.Join(errs...)
}

func (c *conn) do(x exchange) error {
	if _, err := c.net.Write(x.request); err != nil {
		return err
	}
	return c.read(x.answer)
}

var (
	statusOK      = []byte("HTTP/1.1 200 ")
	contentLength = []byte("Content-Length: ")
)

// read reads one response with a Content-Length from the connection.
func (c *conn) read(want []byte) error {
	length := -1
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, statusOK) {
			return fmt.Errorf("the answer begins %q", line)
		}
		if len(line) == 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("the answer has no Content-Length")
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return err
	}
	if want != nil && !bytes.Equal(c.body, want) {
		return fmt.Errorf("the answer is %.200q, want %.200q", c.body, want)
	}
	return nil
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
