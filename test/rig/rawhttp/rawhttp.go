// Package rawhttp sends prepared HTTP/1.1 requests over persistent connections. It uses as little CPU time and memory
// as possible, because some measurements include both server and client.
package rawhttp

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
)

// PlainPrefix precedes the address of a server without TLS.
const PlainPrefix = "http://"

// Exchange is one request in its wire format, and the only correct response.
type Exchange struct {
	Request []byte
	Answer  []byte // expected response; nil: any
}

// Post returns a request for a persistent connection.
func Post(path, token string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, len(body))
	if token != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", token)
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// Conn is a persistent connection. It is not safe for concurrent use.
type Conn struct {
	net.Conn
	in   *bufio.Reader
	body []byte
}

// New returns a connection that sends requests over c.
func New(c net.Conn) *Conn { return &Conn{Conn: c, in: bufio.NewReaderSize(c, 4<<10)} }

// Dial connects to a server. It does not check the certificate of the server.
func Dial(address string) (*Conn, error) {
	if host, plain := strings.CutPrefix(address, PlainPrefix); plain {
		c, err := net.Dial("tcp", host)
		if err != nil {
			return nil, err
		}
		return New(c), nil
	}
	// Other tests check the certificate. Here, checking would only add CPU time.
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// Do sends one request. It fails if the response is not the expected one. body is valid until the next call.
func (c *Conn) Do(x Exchange) (body []byte, err error) {
	if _, err := c.Write(x.Request); err != nil {
		return nil, err
	}
	return c.read(x.Answer)
}

var (
	statusOK      = []byte("HTTP/1.1 200 ")
	contentLength = []byte("Content-Length: ")
)

// read reads one response with a Content-Length from the connection.
func (c *Conn) read(want []byte) ([]byte, error) {
	length := -1
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if first && !bytes.HasPrefix(line, statusOK) {
			return nil, fmt.Errorf("the answer begins %q", line)
		}
		if len(line) == 2 {
			break
		}
		if value, ok := bytes.CutPrefix(line, contentLength); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, err
			}
		}
	}
	if length < 0 {
		return nil, errors.New("the answer has no Content-Length")
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return nil, err
	}
	if want != nil && !bytes.Equal(c.body, want) {
		return nil, fmt.Errorf("the answer is %.200q, want %.200q", c.body, want)
	}
	return c.body, nil
}
