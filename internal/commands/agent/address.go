package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/unixsocket"
)

// address is the address of the listener for requests: a unix socket, or a loopback port.
type address struct {
	socket string
	mode   fs.FileMode
	port   string // host:port
}

func parseAddress(text, mode string) (address, error) {
	if !strings.HasPrefix(text, unixsocket.Scheme) {
		return parsePort(text)
	}
	path, err := unixsocket.Path(text)
	if err != nil {
		return address{}, fmt.Errorf("--listen: %w", err)
	}
	bits, err := strconv.ParseUint(mode, 8, 32)
	if err != nil || bits > 0o777 || bits&0o600 != 0o600 {
		return address{}, fmt.Errorf("--socket-mode is %q; it must be octal digits that let the owner read and write, for instance %s", mode, DefaultSocketMode)
	}
	return address{socket: path, mode: fs.FileMode(bits)}, nil
}

func parsePort(text string) (address, error) {
	host, _, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, fmt.Errorf("--listen is %q; it must be unix:///PATH, or host:port of loopback, for instance 127.0.0.1:8200", text)
	}
	if ip := net.ParseIP(host); !strings.EqualFold(host, "localhost") && (ip == nil || !ip.IsLoopback()) {
		return address{}, fmt.Errorf("--listen is %q; it must be a loopback address, because every client that can reach it acts as this Pod; use %s or 127.0.0.1:8200", text, DefaultListen)
	}
	return address{port: text}, nil
}

func (a address) listen(ctx context.Context) (net.Listener, error) {
	if a.socket != "" {
		l, err := unixsocket.Listen(ctx, a.socket, a.mode)
		if err != nil {
			return nil, fmt.Errorf("--listen: %w", err)
		}
		return l, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.port)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() { // /etc/hosts may define localhost differently
		return nil, errors.Join(fmt.Errorf("--listen is %q, which resolves to %s; it must be a loopback address", a.port, l.Addr()), l.Close())
	}
	return l, nil
}
