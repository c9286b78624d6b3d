package sink

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"os"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

const (
	maxFile       = 1 << 20
	maxHeaderFile = 16 << 10
)

// files contains the names of the files for authentication: CA, client certificate, key, and HTTP headers. All files
// are read again for each connection.
type files struct{ ca, cert, key, header string }

func (f files) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := readFile("ca", f.ca, maxFile)
		if err != nil {
			return nil, err
		}
		if c.RootCAs, err = certtext.Pool(pem); err != nil {
			return nil, fmt.Errorf("the file of ca %w", err)
		}
	}
	if f.cert != "" {
		cert, err := readFile("cert", f.cert, maxFile)
		if err != nil {
			return nil, err
		}
		key, err := readFile("key", f.key, maxFile)
		if err != nil {
			return nil, err
		}
		pair, err := certtext.KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the files of cert and key are not a PEM certificate and its key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// headers reads the lines of the header file, for example Authorization: Bearer ...
func (f files) headers() (http.Header, error) {
	if f.header == "" {
		return http.Header{}, nil
	}
	text, err := readFile("header-file", f.header, maxHeaderFile)
	if err != nil {
		return nil, err
	}
	text = append(bytes.TrimSpace(text), "\n\n"...)
	fields, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(text))).ReadMIMEHeader()
	if err != nil || len(fields) == 0 {
		return nil, errors.New("the file of header-file must have lines of the form NAME: VALUE only") // the lines are secret
	}
	return http.Header(fields), nil
}

func readFile(what, path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the file of %s cannot be read: %w", what, err)
	}
	defer f.Close() //nolint:errcheck // opened only for reading
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("the file of %s cannot be read: %w", what, err)
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("the file of %s has more than %d bytes", what, most)
	}
	return content, nil
}
