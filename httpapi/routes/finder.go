package routes

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Finder finds the route of a request without serving it. It is for programs between a client and the key server.
type Finder struct{ mux *Mux }

// NewFinder returns a Finder. It fails if the table of routes is incomplete.
func NewFinder() (*Finder, error) {
	mux, err := NewMux(All(), func(r Route, allow string) http.Handler { return routeRecorder{r, allow} })
	return &Finder{mux}, err
}

// routeRecorder records the route in a finding instead of serving the request.
type routeRecorder struct {
	route Route
	allow string
}

func (l routeRecorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if found, ok := w.(*finding); ok {
		found.routeRecorder, found.request = l, r
	}
}

// finding is a response writer in which a routeRecorder stores the route and the request.
type finding struct {
	http.ResponseWriter
	routeRecorder
	request *http.Request
}

// Found is a request with its route.
type Found struct {
	Route
	request *http.Request
}

// Find fails with NOT_FOUND, METHOD_NOT_ALLOWED or UNSUPPORTED_ENCODING as the key server does. If the path does not
// have the method, allow lists the methods of the path.
func (f *Finder) Find(r *http.Request) (found *Found, allow string, err error) {
	asked := &finding{}
	f.mux.ServeHTTP(asked, r)
	switch {
	case asked.request == nil || asked.route.Path == NoRoute:
		return nil, "", ErrNoRoute
	case asked.allow != "":
		return nil, asked.allow, ErrMethod(asked.allow)
	}
	if err := RefuseEncoded(r); err != nil {
		return nil, "", err
	}
	return &Found{Route: asked.route, request: asked.request}, "", nil
}

// NoEncoding is the Content-Encoding of a body that has none.
const NoEncoding = "identity"

// RefuseEncoded refuses a compressed or otherwise encoded body, because its decoded size is not
// known before it is read.
func RefuseEncoded(r *http.Request) error {
	for _, encoding := range r.Header["Content-Encoding"] {
		if encoding != "" && !strings.EqualFold(encoding, NoEncoding) {
			return fault.New(fault.UnsupportedEncoding, "Content-Encoding: is %.40q; send the body without an encoding", encoding).
				Audited(fault.ReasonBadMessage)
		}
	}
	return nil
}

// Streamed reports whether the body is processed while it is read, so that it may be long.
func (r Route) Streamed() bool { return r.Form != nil }

// NamesKeys reports whether a request of the route can name a key.
func (r Route) NamesKeys() bool { return namesKeys(wire.Of(r.Request)) }

func namesKeys(t *wire.Table) bool {
	return slices.ContainsFunc(slices.Concat(t.Path, t.Query, t.Body), func(f wire.Field) bool {
		v := f.Value
		if v.Elem != nil {
			v = *v.Elem
		}
		return f.Names == string(keyserver.KeySubject) || v.Members != nil && namesKeys(v.Members)
	})
}

// Keys returns the keys, and the first keys of key lineages, that the request names. It decodes the request, and
// rejects an invalid request as the key server would.
func (f *Found) Keys(body []byte) ([]schema.HiddenLink, error) {
	in, err := f.decode(f.request.PathValue, f.request.URL.RawQuery, body)
	if err != nil {
		return nil, err
	}
	var keys []schema.HiddenLink
	for _, n := range wire.Of(f.Request).Names(in) {
		if link, ok := n.Value.(schema.HiddenLink); ok && n.Kind == string(keyserver.KeySubject) {
			keys = append(keys, link)
		}
	}
	return keys, nil
}

// maxKeyHead is the maximum number of bytes of a streamed body that are read to find its key. They are in memory
// together with a part of the message.
const maxKeyHead = 1 << 20

var (
	errKeyBehind = fault.New(fault.BadRequest, "data: is too long to come before the name of the key; send the name of the key first")
	errKeyFar    = fault.New(fault.BadRequest, "body: the name of the key must be within the first %d bytes", maxKeyHead)
)

// StreamedKey reads a streamed body until it finds the name of the key. It also returns the bytes that it has read. If
// the body names a second key later, StreamedKey does not notice; the key server refuses such a request.
func (f *Found) StreamedKey(body io.Reader) (key schema.HiddenLink, head []byte, err error) {
	read := &bounded{}
	b, err := hmacbody.Read(f.Form, io.TeeReader(body, read), hmacbody.Spool{Account: noAccount{}})
	if err != nil {
		return "", nil, err
	}
	defer b.Close()
	return schema.HiddenLink(b.Link()), read.Bytes(), nil
}

// WholeKey returns the hidden link of the key in a complete body of a streamed route. It fails if the body is incomplete or
// malformed.
func (f *Found) WholeKey(body []byte) (schema.HiddenLink, error) {
	b, err := hmacbody.Read(f.Form, bytes.NewReader(body), hmacbody.Spool{Account: noAccount{}})
	if err != nil {
		return "", err
	}
	defer b.Close()
	_, err = b.WriteTo(io.Discard)
	return schema.HiddenLink(b.Link()), err
}

// noAccount refuses messages that arrive before the name of their key.
type noAccount struct{}

func (noAccount) Take(int64) error { return errKeyBehind }
func (noAccount) Begin() error     { return nil }
func (noAccount) Return(int64)     {}

// bounded stores the written bytes, up to maxKeyHead.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxKeyHead {
		return 0, errKeyFar
	}
	return b.Buffer.Write(p)
}
