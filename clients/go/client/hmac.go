package client

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// HMAC computes HMAC-SHA384 of the message under the key. It streams the message. It retries only if the reader can
// seek or nothing was read from it. It does not retry after PEER_UNAVAILABLE: the key server may have counted a use of
// the key, and a retry may count another use.
func (c *Client) HMAC(ctx context.Context, link schema.HiddenLink, message io.Reader) (schema.HMACResponse, error) {
	compute := route{name: "computeHmac", method: http.MethodPost, path: "/api/crypto/hmac", named: true, counts: true}
	return send[schema.HMACResponse](ctx, c, call{route: compute, target: compute.path, stream: messages(`"hiddenLink":"`+link.String()+`"`, message)})
}

// MAC computes HMAC-SHA384 of the message under the newest enabled key of a key lineage, which is named
// by its first key. It streams and retries as HMAC does.
func (c *Client) MAC(ctx context.Context, lineage schema.HiddenLink, message io.Reader) (schema.MACResponse, error) {
	compute := route{name: "computeMac", method: http.MethodPost, path: "/api/crypto/mac", named: true, counts: true}
	return send[schema.MACResponse](ctx, c, call{route: compute, target: compute.path, stream: messages(`"lineage":"`+lineage.String()+`"`, message)})
}

// VerifyMAC reports whether the MAC in.MAC is valid for the message, under the key or key lineage that in names. It
// ignores in.Data. It streams and retries as HMAC does.
func (c *Client) VerifyMAC(ctx context.Context, in schema.VerifyMACRequest, message io.Reader) (schema.VerifyMACResponse, error) {
	verify := route{name: "verifyMac", method: http.MethodPost, path: "/api/crypto/mac/verify", named: true, counts: true}
	members := `"mac":"` + base64.StdEncoding.EncodeToString(in.MAC) + `"`
	if in.TTag != nil {
		members += `,"ttag":"` + in.TTag.String() + `"`
	}
	if in.Lineage != nil {
		members += `,"lineage":"` + in.Lineage.String() + `"`
	}
	return send[schema.VerifyMACResponse](ctx, c, call{route: verify, target: verify.path, stream: messages(members, message)})
}

// messages returns a function that returns the body of each attempt: the members,
// followed by the message.
func messages(members string, message io.Reader) func(context.Context) (io.Reader, error) {
	var rewind func() error
	if seeker, seeks := message.(io.Seeker); seeks {
		// A pipe that is opened as a file cannot seek.
		if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			rewind = func() error {
				_, err := seeker.Seek(start, io.SeekStart)
				return err
			}
		}
	}
	told := hand(message, rewind)
	return func(ctx context.Context) (io.Reader, error) {
		text, err := told.next(ctx)
		if err != nil {
			return nil, err
		}
		return io.MultiReader(
			strings.NewReader(`{`+members+`,"data":"`),
			&encoder{from: text},
			strings.NewReader(`"}`),
		), nil
	}
}

// Encoded returns a reader of the message in canonical base64, for callers that build the body of a
// streamed route (Forwarded).
func Encoded(message io.Reader) io.Reader { return &encoder{from: message} }

// encoder encodes what it reads in canonical base64.
type encoder struct {
	from io.Reader
	raw  [6 << 10]byte // a multiple of 3, so that only the end has padding
	text [8 << 10]byte
	left []byte
	err  error
}

func (e *encoder) Read(p []byte) (int, error) {
	for len(e.left) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		n, err := io.ReadFull(e.from, e.raw[:])
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		e.err = err
		base64.StdEncoding.Encode(e.text[:], e.raw[:n])
		e.left = e.text[:base64.StdEncoding.EncodedLen(n)]
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}
