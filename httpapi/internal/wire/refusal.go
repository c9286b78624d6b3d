package wire

import (
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// refusal is a fault under construction: the field's name is known only to the
// caller of whoever finds the problem. It never quotes the value, which may be
// a secret.
type refusal struct {
	path    string
	problem string
}

func (r *refusal) fault() error {
	if r == nil {
		return nil
	}
	if r.path == "" {
		r.path = body
	}
	return Refuse(r.path, r.problem)
}

// in prefixes the path with the member that the refused value stands in.
func (r *refusal) in(name string) *refusal {
	switch {
	case r.path == "":
		r.path = name
	case r.path[0] == '[':
		r.path = name + r.path
	default:
		r.path = name + "." + r.path
	}
	return r
}

// Refuse makes the fault for one field. The problem reads on from the name,
// for instance "must not be empty".
func Refuse(field, problem string) error {
	return fault.New(fault.BadRequest, "%s: %s", field, problem)
}

// body is the name that refusals give to the request body as a whole.
const body = "body"

// Quote shows a name that a caller sent, cut so that a detail stays short.
func Quote(name string) string {
	const most = 64
	if len(name) > most {
		name = name[:most] + "..."
	}
	out := make([]byte, 0, len(name)+2)
	out = append(out, '"')
	for i := range len(name) {
		if c := name[i]; c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			out = append(out, c)
		} else {
			out = append(out, '?')
		}
	}
	return string(append(out, '"'))
}
