package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"

	goyaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Reasons to reject a file, because a reader could silently use only a part of it.
var (
	errUTF16   = errors.New("is UTF-16 text, as PowerShell writes it; save it as UTF-8")
	errNotUTF8 = errors.New("is not UTF-8 text")
	errSecond  = errors.New("has a second document that does not begin with a line of three dashes (---); other programs may ignore it")
)

// utf8Text returns the text of a file without its byte order mark.
func utf8Text(content []byte) ([]byte, error) {
	start := content[:min(2, len(content))]
	switch {
	case bytes.Equal(start, []byte("\xff\xfe")), bytes.Equal(start, []byte("\xfe\xff")), bytes.IndexByte(start, 0) >= 0:
		return nil, errUTF16
	case !utf8.Valid(content):
		return nil, errNotUTF8
	}
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), nil
}

// document is one YAML or JSON document in a file.
type document struct {
	line int // line number of its first line
	text []byte
	json bool
}

// parts splits a file at each line that starts with three dashes, followed by the end of the line, white space or a
// comment.
func parts(content []byte) []document {
	all := []document{{line: 1}}
	line, begins, read := 0, 0, 0 // begins is the offset of the last part
	for text := range bytes.Lines(content) {
		line++
		ends := read
		read += len(text)
		last := &all[len(all)-1]
		rest, marks := bytes.CutPrefix(text, []byte("---"))
		if !marks || len(rest) > 0 && !bytes.ContainsRune([]byte(" \t\r\n#"), rune(rest[0])) {
			last.text = content[begins:read]
			continue
		}
		last.text = content[begins:ends]
		if len(bytes.TrimSpace(last.text)) == 0 { // empty: before the first mark, or between two marks
			all = all[:len(all)-1]
		}
		if said := bytes.TrimSpace(rest); len(said) == 0 || said[0] == '#' {
			begins = read
			all = append(all, document{line: line + 1})
			continue
		}
		begins = read - len(rest)
		all = append(all, document{line: line, text: rest})
	}
	return all
}

// documents splits a part that is a sequence of JSON objects. Any other part is one YAML document, even if it begins
// like JSON.
func documents(part document) []document {
	if !bytes.HasPrefix(bytes.TrimSpace(part.text), []byte("{")) {
		return []document{part}
	}
	var all []document
	line, seen := part.line, 0
	decoder := json.NewDecoder(bytes.NewReader(part.text))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			return []document{part}
		}
		begins := int(decoder.InputOffset()) - len(value)
		line += bytes.Count(part.text[seen:begins], []byte("\n"))
		seen = begins
		all = append(all, document{line: line, text: value, json: true})
	}
}

// objects decodes a document. It rejects duplicate keys.
func (d document) objects() ([]*unstructured.Unstructured, error) {
	raw := d.text
	if !d.json {
		var err error
		if raw, err = d.toJSON(); err != nil {
			return nil, err
		}
	}
	if bytes.Equal(raw, []byte("null")) {
		return nil, nil // only comments, or empty
	}
	if raw[0] != '{' {
		return nil, errors.New("is not a manifest: it must be a mapping with apiVersion, kind and metadata")
	}
	var object map[string]any
	twice, err := kjson.UnmarshalStrict(raw, &object)
	if err != nil {
		return nil, errors.New("is not a manifest: it is nested too deep or has a number that is too large")
	}
	if len(twice) > 0 {
		return nil, errors.New("is not JSON that can be applied: a key occurs twice")
	}
	return flatten(object)
}

// toJSON converts a YAML document. It inserts an empty line at the start, because the parser reports no line number for
// an error in the first line.
func (d document) toJSON() ([]byte, error) {
	text := append([]byte("\n"), d.text...)
	raw, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = requireSingleDocument(text)
	}
	if err != nil && !errors.Is(err, errSecond) {
		err = redactError(err, d.line-2)
	}
	return raw, err
}

// requireSingleDocument returns an error if the text has more than one document, because the conversion reads only the first.
func requireSingleDocument(text []byte) error {
	decoder := goyaml.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		err := decoder.Decode(&passedOver{})
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n > 0:
			return errSecond
		}
	}
}

// passedOver is a YAML value that is parsed and not stored.
type passedOver struct{}

func (*passedOver) UnmarshalYAML(func(any) error) error { return nil }
