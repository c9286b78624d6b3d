package schema

// Plain is an answer that is no JSON.
type Plain interface {
	MediaType() string
	// Bytes are those of the answer, to be read or to be set.
	Bytes() *[]byte
}

// Text is an answer of lines of text.
type Text []byte

// MediaType implements Plain.
func (Text) MediaType() string { return "text/plain; charset=utf-8" }

// Bytes implements Plain.
func (t *Text) Bytes() *[]byte { return (*[]byte)(t) }

// Octets is an answer of bytes that are no text.
type Octets []byte

// MediaType implements Plain.
func (Octets) MediaType() string { return "application/octet-stream" }

// Bytes implements Plain.
func (o *Octets) Bytes() *[]byte { return (*[]byte)(o) }
