package wire

// FieldError is the refusal of one field of a request. It never quotes the value, which may be a secret.
type FieldError struct {
	Field   string
	Problem string // continues the name, for example "must not be empty"
}

// Error implements error with the name of the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// refusal is an incomplete FieldError: the function that finds a problem does not know the name of the field; its
// caller adds the name. A refusal never quotes the value, which may be a secret.
type refusal struct {
	path    string
	problem string
}

func (r *refusal) err() error {
	if r == nil {
		return nil
	}
	if r.path == "" {
		r.path = body
	}
	return &FieldError{r.path, r.problem}
}

// in adds the member that contains the refused value to the front of the path.
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

// body is the name of the entire request body in refusals.
const body = "body"

// Quote quotes a name that a caller sent. It truncates long names and
// replaces unsafe characters.
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
