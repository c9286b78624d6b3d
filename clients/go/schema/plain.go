package schema

// Plain is a response that is not JSON.
type Plain interface {
	MediaType() string
	// Bytes returns a pointer to the bytes of the response.
	Bytes() *[]byte
}

// Text is a response of lines of text.
type Text []byte

// MediaType implements Plain.
func (Text) MediaType() string { return "text/plain; charset=utf-8" }

// Bytes implements Plain.
func (t *Text) Bytes() *[]byte { return (*[]byte)(t) }

// Octets is a response of binary data.
type Octets []byte

// MediaType implements Plain.
func (Octets) MediaType() string { return "application/octet-stream" }

// Bytes implements Plain.
func (o *Octets) Bytes() *[]byte { return (*[]byte)(o) }
