package client

import (
	"context"
	"reflect"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
)

// route describes a route to the client. The routes of generated methods come from the
// server's table.
type route struct {
	name   string // its operationId
	method string
	path   string // with the names of its fields in braces
	open   bool   // needs no session
	// named reports that the request names an object. For any other request, NOT_FOUND means that the key server does not
	// have the path.
	named bool
	// counts reports that the call may count a use of a key.
	counts bool
	// makes reports that the call creates an object that can have an owner.
	makes bool
}

// ask sends a request of the route. The tags of a field decide whether it is in the path, the query or the body. A
// request that cannot be encoded is refused before it is sent. in is nil if the route has no fields.
func ask[Out any](ctx context.Context, c *Client, r route, in any) (Out, error) {
	k := call{route: r, target: r.path}
	if in != nil {
		table := wire.Of(reflect.TypeOf(in))
		path, err := table.EncodePath(r.path, in)
		if err != nil {
			var none Out
			return none, c.finished(r, &Error{Code: "BAD_REQUEST", Detail: err.Error()})
		}
		k.target = path + table.EncodeQuery(in)
		if len(table.Body) > 0 {
			k.body = in
		}
	}
	if poll, ok := in.(interface{ LongPoll() time.Duration }); ok {
		k.wait = poll.LongPoll()
	}
	if asked, ok := in.(interface{ Mismatch(answer Out) string }); ok {
		k.mismatch = func(answer any) string {
			got, _ := answer.(*Out) // send uses this type
			return asked.Mismatch(*got)
		}
	}
	return send[Out](ctx, c, k)
}

// finished reports the end of a call to the observer, and returns err.
func (c *Client) finished(r route, err error) error {
	if c.observe != nil {
		c.observe(r.name, err)
	}
	return err
}
