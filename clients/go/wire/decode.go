package wire

import (
	"bytes"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// decoders are reused, because each of them keeps a buffer of the size of its last body.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// DecodeBody decodes a body into the fields of out, a pointer to the table's type.
// It finds repeated members itself and not with the JSON reader, so that the
// refusal can name them.
func (t *Table) DecodeBody(text []byte, out any) error {
	if len(t.Body) == 0 {
		return refuseBody(text)
	}
	if len(bytes.TrimLeft(text, " \t\r\n")) == 0 {
		if !t.NeedsBody() {
			return nil
		}
		return &FieldError{body, "is empty; send a JSON object with " + t.known}
	}
	dec := decoders.Get().(*jsontext.Decoder) //nolint:errcheck // the pool holds nothing else
	defer decoders.Put(dec)
	dec.Reset(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
	if dec.PeekKind() != '{' {
		return notAnObject(dec)
	}
	if r := t.decode(dec, reflect.ValueOf(out).Elem()); r != nil {
		return r.err()
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &FieldError{body, "has data after the JSON object; send only one object"}
	}
	return nil
}

func notAnObject(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return malformed(err).err()
	}
	return &FieldError{body, "must be a JSON object"}
}

// refuseBody accepts only an empty body or {}, for a route without body.
func refuseBody(text []byte) error {
	text = bytes.Trim(text, " \t\r\n")
	if len(text) == 0 {
		return nil
	}
	if text[0] == '{' && text[len(text)-1] == '}' && len(bytes.Trim(text[1:len(text)-1], " \t\r\n")) == 0 {
		return nil
	}
	return &FieldError{body, "must be empty or {} on this route"}
}

func (t *Table) decode(dec *jsontext.Decoder, out reflect.Value) *refusal {
	if _, err := dec.ReadToken(); err != nil {
		return malformed(err)
	}
	var seen uint64
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return malformed(err)
		}
		i, ok := t.byName[name.String()]
		if !ok {
			return &refusal{Quote(name.String()), "is not a member of this request; the members are " + t.known}
		}
		f := &t.Body[i]
		if seen&(1<<i) != 0 {
			return &refusal{f.Name, "is sent twice; send it once"}
		}
		seen |= 1 << i
		if r := f.decode(dec, out); r != nil {
			return r.in(f.Name)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return malformed(err)
	}
	for i := range t.Body {
		if f := &t.Body[i]; f.Required && seen&(1<<i) == 0 {
			return &refusal{f.Name, "is missing; " + f.Value.instruction()}
		}
	}
	return nil
}

func (f *Field) decode(dec *jsontext.Decoder, out reflect.Value) *refusal {
	if dec.PeekKind() == 'n' {
		if !f.Nullable {
			if f.Required {
				return &refusal{problem: "must not be null; " + f.Value.instruction()}
			}
			return &refusal{problem: "must not be null; leave it out, or " + f.Value.instruction()}
		}
		_, err := dec.ReadToken()
		return malformed(err)
	}
	return f.Value.decode(dec, f.target(out))
}

// target returns the addressable value of the field. It allocates the value of an
// optional field.
func (f *Field) target(out reflect.Value) reflect.Value {
	v := out.FieldByIndex(f.index)
	if !f.pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

func (v *Value) decode(dec *jsontext.Decoder, out reflect.Value) *refusal {
	switch v.Kind {
	case Array:
		return v.decodeArray(dec, out)
	case Object:
		if dec.PeekKind() != '{' {
			return v.wrongType(dec)
		}
		return v.Members.decode(dec, out)
	case Either:
		return v.decodeEither(dec, out)
	case Any:
		if dec.PeekKind() != '{' {
			return v.wrongType(dec)
		}
		return v.decodeWhole(dec, out)
	default:
		return v.decodeToken(dec, out)
	}
}

// takes reports whether the kind accepts a JSON token that begins with k.
func (v *Value) takes(k jsontext.Kind) bool {
	switch v.Kind {
	case Integer:
		return k == '0'
	case Boolean:
		return k == 't' || k == 'f'
	default:
		return k == '"'
	}
}

func (v *Value) decodeToken(dec *jsontext.Decoder, out reflect.Value) *refusal {
	if !v.takes(dec.PeekKind()) {
		return v.wrongType(dec)
	}
	token, err := dec.ReadToken()
	if err != nil {
		return malformed(err)
	}
	switch v.Kind {
	case Boolean:
		out.SetBool(token.Bool())
		return nil
	default:
		return v.set(out, token.String())
	}
}

// decodeEither lets the type itself choose between two JSON types.
func (v *Value) decodeEither(dec *jsontext.Decoder, out reflect.Value) *refusal {
	switch dec.PeekKind() {
	case '"', '0', '[':
	default:
		return v.wrongType(dec)
	}
	return v.decodeWhole(dec, out)
}

func (v *Value) decodeWhole(dec *jsontext.Decoder, out reflect.Value) *refusal {
	text, err := dec.ReadValue()
	if err != nil {
		return malformed(err)
	}
	u := out.Addr().Interface().(stdjson.Unmarshaler) //nolint:errcheck // a test checks all scalars
	if err := u.UnmarshalJSON(text); err != nil {
		return &refusal{problem: err.Error()}
	}
	return nil
}

func (v *Value) decodeArray(dec *jsontext.Decoder, out reflect.Value) *refusal {
	if dec.PeekKind() != '[' {
		return v.wrongType(dec)
	}
	if _, err := dec.ReadToken(); err != nil {
		return malformed(err)
	}
	list := reflect.MakeSlice(out.Type(), 0, 0) // not nil: an empty list is not a missing one
	for n := 0; ; n++ {
		switch kind := dec.PeekKind(); {
		case kind == ']':
			if n < v.MinLen {
				return &refusal{problem: "must have at least " + strconv.Itoa(v.MinLen) + " elements"}
			}
			out.Set(list)
			_, err := dec.ReadToken()
			return malformed(err)
		case v.MaxLen >= 0 && n >= v.MaxLen:
			return &refusal{problem: "must have at most " + strconv.Itoa(v.MaxLen) + " elements"}
		}
		elem := reflect.New(out.Type().Elem()).Elem()
		decode := v.Elem.decodeElem
		if _, ok := elem.Addr().Interface().(schema.SeparateElement); ok {
			decode = v.Elem.decodeApart
		}
		if r := decode(dec, elem); r != nil {
			return r.in("[" + strconv.Itoa(n) + "]")
		}
		list = reflect.Append(list, elem)
	}
}

func (v *Value) decodeElem(dec *jsontext.Decoder, elem reflect.Value) *refusal {
	if dec.PeekKind() == 'n' {
		return &refusal{problem: "must not be null; " + v.instruction()}
	}
	return v.decode(dec, elem)
}

// decodeApart stores the refusal of an element in the element if the element is valid JSON.
func (v *Value) decodeApart(dec *jsontext.Decoder, elem reflect.Value) *refusal {
	text, err := dec.ReadValue()
	if err != nil {
		return malformed(err)
	}
	own := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
	if r := v.decodeElem(own, elem); r != nil {
		if r.path == "" {
			r.path = "the element"
		}
		elem.Addr().Interface().(schema.SeparateElement).Refuse(r.err()) //nolint:errcheck // the caller has checked the type
	}
	return nil
}

// wrongType refuses a value of another JSON type, or malformed JSON.
func (v *Value) wrongType(dec *jsontext.Decoder) *refusal {
	if _, err := dec.ReadToken(); err != nil {
		return malformed(err)
	}
	return &refusal{problem: v.requirement()}
}

// set decodes a scalar from its text: a JSON string without quotes, a number, a query
// parameter or a path segment.
func (v *Value) set(out reflect.Value, text string) *refusal {
	switch {
	case v.Kind == Time:
		return v.setTime(out, text)
	case v.Scalar != nil && !v.Scalar.Secret:
		return v.setScalar(out, text)
	case v.Kind == Integer:
		return v.setInteger(out, text)
	case v.Kind == Boolean:
		return v.setBoolean(out, text)
	default:
		return v.setText(out, text)
	}
}

func (v *Value) setScalar(out reflect.Value, text string) *refusal {
	var err error
	switch u := out.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		if v.Scalar.Binary && v.Max != nil && int64(len(text)/4*3) > *v.Max+2 {
			return &refusal{problem: "must encode at most " + strconv.FormatInt(*v.Max, 10) + " bytes"}
		}
		err = u.UnmarshalText([]byte(text))
	case stdjson.Unmarshaler:
		err = u.UnmarshalJSON([]byte(text))
	}
	if err != nil {
		return &refusal{problem: err.Error()}
	}
	if v.Scalar.Binary {
		return v.within(int64(out.Len()), "encode", "bytes")
	}
	return nil
}

func (v *Value) setInteger(out reflect.Value, text string) *refusal {
	n, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return &refusal{problem: v.requirement()}
	}
	if err != nil || strconv.FormatInt(n, 10) != text {
		return &refusal{problem: "must be an integer without fraction, exponent or leading zeros"}
	}
	out.SetInt(n)
	if r := v.within(n, "be", ""); r != nil {
		return &refusal{problem: v.requirement()}
	}
	return v.enumerated(text)
}

func (v *Value) setBoolean(out reflect.Value, text string) *refusal {
	if text != "true" && text != "false" {
		return &refusal{problem: v.requirement()}
	}
	out.SetBool(text == "true")
	return nil
}

func (v *Value) setTime(out reflect.Value, text string) *refusal {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return &refusal{problem: v.requirement()}
	}
	if at.IsZero() {
		return &refusal{problem: "must not be 0001-01-01T00:00:00Z, which means no time; leave it out"}
	}
	out.Set(reflect.ValueOf(at.UTC()))
	return nil
}

func (v *Value) setText(out reflect.Value, text string) *refusal {
	if !utf8.ValidString(text) {
		return &refusal{problem: "must be valid UTF-8"}
	}
	if v.Trim {
		text = strings.TrimSpace(text)
	}
	if len(v.Enum) == 0 && v.Scalar == nil && strings.ContainsFunc(text, control) {
		// Databases, logs and terminals interpret control characters in different ways.
		return &refusal{problem: "must not contain control characters"}
	}
	if r := v.enumerated(text); r != nil {
		return r
	}
	if r := v.within(int64(utf8.RuneCountInString(text)), "have", "characters"); r != nil {
		return r
	}
	out.SetString(text)
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

func (v *Value) enumerated(text string) *refusal {
	if len(v.Enum) == 0 {
		return nil
	}
	for _, e := range v.Enum {
		if e == text {
			return nil
		}
	}
	return &refusal{problem: v.requirement()}
}

func (v *Value) within(n int64, verb, unit string) *refusal {
	switch {
	case v.Min != nil && n < *v.Min && *v.Min == 1 && n == 0:
		return &refusal{problem: "must not be empty"}
	case v.Min != nil && n < *v.Min:
		return &refusal{problem: "must " + verb + " at least " + strconv.FormatInt(*v.Min, 10) + " " + unit}
	case v.Max != nil && n > *v.Max:
		return &refusal{problem: "must " + verb + " at most " + strconv.FormatInt(*v.Max, 10) + " " + unit}
	default:
		return nil
	}
}

// requirement describes the expected value.
func (v *Value) requirement() string { return "must be " + v.what() }

// instruction describes what to send.
func (v *Value) instruction() string { return "send " + v.what() }

func (v *Value) what() string {
	switch {
	case len(v.Enum) == 1:
		return v.Enum[0]
	case len(v.Enum) > 1:
		return "one of " + strings.Join(v.Enum, ", ")
	}
	switch v.Kind {
	case Integer:
		return "an integer" + v.span()
	case Boolean:
		return "true or false"
	case Time:
		return "an RFC 3339 time such as 2026-01-31T08:00:00Z"
	case Array:
		return "an array"
	case Object, Any:
		return "an object"
	case Either:
		if v.Scalar.Example[0] == '"' {
			return "a decimal number, as an integer or a string"
		}
		return "an integer or an array of names"
	default:
		return "a string"
	}
}

func (v *Value) span() string {
	switch {
	case v.Scalar != nil:
		return " from 0 to 4294967295"
	case v.Min != nil && v.Max != nil:
		return " from " + strconv.FormatInt(*v.Min, 10) + " to " + strconv.FormatInt(*v.Max, 10)
	case v.Min != nil:
		return " of at least " + strconv.FormatInt(*v.Min, 10)
	case v.Max != nil:
		return " of at most " + strconv.FormatInt(*v.Max, 10)
	default:
		return ""
	}
}

// malformed refuses invalid JSON. The error of the JSON reader may quote the body, so the refusal has only the position
// and the member.
func malformed(err error) *refusal {
	if err == nil {
		return nil
	}
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		return &refusal{problem: "is not valid JSON near byte " + strconv.FormatInt(s.ByteOffset, 10) + "; send one complete JSON object in UTF-8"}
	}
	return &refusal{problem: "ends too early; send one complete JSON object"}
}
