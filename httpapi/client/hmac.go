package client

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// HMAC computes HMAC-SHA384 of the message under the key. The message is
// streamed, never held whole. It is sent again after a refusal only where the
// reader seeks or nothing of it was read, and not after PEER_UNAVAILABLE: a use of the key may have been
// counted, and another try may count another one.
func (c *Client) HMAC(ctx context.Context, link schema.HiddenLink, message io.Reader) (schema.HMACResponse, error) {
	compute := route{name: "computeHmac", method: http.MethodPost, path: "/api/crypto/hmac", named: true, counts: true}
	return send[schema.HMACResponse](ctx, c, call{route: compute, target: compute.path, stream: messages(`"hiddenLink":"`+link.String()+`"`, message)})
}

// MAC computes HMAC-SHA384 of the message under the newest enabled key of a line,
// which is named by its first key. It streams and repeats as HMAC does.
func (c *Client) MAC(ctx context.Context, lineage schema.HiddenLink, message io.Reader) (schema.MACResponse, error) {
	compute := route{name: "computeMac", method: http.MethodPost, path: "/api/crypto/mac", named: true, counts: true}
	return send[schema.MACResponse](ctx, c, call{route: compute, target: compute.path, stream: messages(`"lineage":"`+lineage.String()+`"`, message)})
}

// VerifyMAC says whether a MAC is that of the message, under the key or line that
// in names; its Data is left alone. It streams and repeats as HMAC does.
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

// messages returns what makes the body of each attempt: these members, and the
// message behind them.
func messages(members string, message io.Reader) func(context.Context) (io.Reader, error) {
	var rewind func() error
	if seeker, seeks := message.(io.Seeker); seeks {
		// A pipe in the clothes of a file does not seek.
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

// Encoded reads as canonical base64 of the message, for whoever makes the body of a
// streamed route (Forwarded).
func Encoded(message io.Reader) io.Reader { return &encoder{from: message} }

// encoder reads canonical base64 of what it reads.
type encoder struct {
	from io.Reader
	raw  [6 << 10]byte // a multiple of 3, so that only the end is padded
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
