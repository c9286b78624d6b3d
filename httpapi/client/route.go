package client

import (
	"context"
	"reflect"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
)

// route is what the client knows of a route. Those of the generated methods are
// made from the server's table.
type route struct {
	name   string // its operationId
	method string
	path   string // with the names of its fields in braces
	open   bool   // needs no session
	// named: the request names an object. Of any other a NOT_FOUND can only be
	// about the path.
	named bool
	// counts: the call may count a use of a key.
	counts bool
	// makes: the call makes something that can have an owner.
	makes bool
}

// ask sends a request of the route: its fields go where their tags say. What
// could not be a request is refused before anything is sent. in is nil where
// the route takes no field.
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
	if asked, ok := in.(interface{ Unlike(answer Out) string }); ok {
		k.unlike = func(answer any) string {
			got, _ := answer.(*Out) // send makes no other
			return asked.Unlike(*got)
		}
	}
	return send[Out](ctx, c, k)
}

// finished tells whoever observes how a call of the route ended.
func (c *Client) finished(r route, err error) error {
	if c.observe != nil {
		c.observe(r.name, err)
	}
	return err
}
