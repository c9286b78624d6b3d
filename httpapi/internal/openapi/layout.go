package openapi

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// LineWidth is the maximum length of a line of the document, if the line can be broken.
const LineWidth = 140

// layOut breaks JSON into lines that are indented by spaces. A value that fits into one line stays on one line, because
// a document with one word per line is hard to read.
func layOut(compact []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := layOutValue(&b, compact, "", 0); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// layOutValue writes one value. indent is the indentation of its line. The line already has used characters after the
// indentation.
func layOutValue(b *bytes.Buffer, v jsontext.Value, indent string, used int) error {
	flat := v.Clone()
	if err := flat.Format(jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true)); err != nil {
		return err
	}
	if kind := v.Kind(); kind != '{' && kind != '[' || len(indent)+used+len(flat) < LineWidth {
		b.Write(flat)
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	open, err := dec.ReadToken()
	if err != nil {
		return err
	}
	b.WriteString(open.String())
	inner := indent + "  "
	for first := true; dec.PeekKind() != '}' && dec.PeekKind() != ']'; first = false {
		if !first {
			b.WriteByte(',')
		}
		b.WriteString("\n" + inner)
		used := 0
		if open.Kind() == '{' {
			name, err := dec.ReadValue()
			if err != nil {
				return err
			}
			used, _ = fmt.Fprintf(b, "%s: ", name)
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if err := layOutValue(b, value, inner, used); err != nil {
			return err
		}
	}
	end, err := dec.ReadToken()
	if err != nil {
		return err
	}
	b.WriteString("\n" + indent + end.String())
	return nil
}
