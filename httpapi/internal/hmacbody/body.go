// Package hmacbody reads the bodies of POST /api/crypto/hmac, mac and mac/verify,
// flat objects like {hiddenLink, data}, without ever holding the message whole: the
// text of data goes through one bounded window into base64 and on into the MAC. No
// JSON reader in reach can stop inside a string, so the members are scanned here.
//
// A message that fits the buffer is checked to its last byte before anybody is
// asked for a MAC. A longer one is checked while it flows, and WriteTo fails
// before its end when something is wrong. When data stands before the name of the
// key there is none yet to compute under: the decoded message is spooled, first
// in the buffer, then in a temporary file that has no name. A MAC that is to be
// verified may stand before or behind the message.
package hmacbody

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/wire"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/canonical"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	memberData = "data"
	memberMAC  = "mac"

	// windowSize is how much of the body is held at a time.
	windowSize = 64 << 10
	// chunkSize is what a whole window decodes to.
	chunkSize = windowSize / 4 * 3
	// slack is room behind a chunk for a decoder that writes whole blocks.
	slack = 64
	// maxString bounds a name or hidden link as it is spelled, escapes included.
	maxString = 1 << 10
)

// Body is a request being read. It belongs to one goroutine at a time.
type Body struct {
	src   io.Reader
	where Spool

	window [windowSize]byte
	r, w   int // what of the window is unread
	high   int // how much of it was ever used
	ended  bool

	chunk  [chunkSize + slack]byte
	n      int   // decoded bytes that are not yet written
	total  int64 // decoded bytes in all
	padded bool  // nothing may follow
	data   dataState

	form    *Form
	named   string // the member that names the key; empty until it is read
	link    schema.HiddenLink
	hasMAC  bool
	mac     [keyserver.MACSize]byte
	spool   *os.File
	spooled int64 // bytes that room was taken for
	spent   bool
}

// Form is which members a body has besides data.
type Form struct {
	all   string   // as refusals list them
	names []string // of which one is sent: it names the key
	key   string   // what that is
	mac   bool
}

// The forms.
var (
	HMAC   = &Form{all: "hiddenLink, data", names: []string{"hiddenLink"}, key: "the key's hidden link"}
	MAC    = &Form{all: "lineage, data", names: []string{"lineage"}, key: "the hidden link of the line's first key"}
	Verify = &Form{all: "ttag or lineage, mac, data", names: []string{"ttag", "lineage"}, key: "the key's hidden link, or that of the line's first key", mac: true}
)

// Spool is where a message goes whose key is not known yet.
type Spool struct {
	Dir string // empty: the system's
	// Begin is asked before the first byte is spooled; nil: nobody.
	Begin func() error
	// Take and Return account for the bytes; both or neither are nil.
	Take   func(n int64) error
	Return func(n int64)
}

type dataState int

const (
	dataAbsent dataState = iota
	dataOpen             // inside the string
	dataClosed           // behind its closing quote
)

var bodies = sync.Pool{New: func() any { return new(Body) }}

// Read reads the body as far as needed to know the hidden link, and the whole
// of it where the message is short. The caller must Close it. Every refusal is
// BAD_REQUEST; an error of src or of the spool is returned as it is.
func Read(form *Form, src io.Reader, where Spool) (*Body, error) {
	b := bodies.Get().(*Body) //nolint:errcheck // the pool holds nothing else
	b.form, b.src, b.where = form, src, where
	err := b.begin()
	if err == nil {
		err = b.members(true)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Link returns the key's hidden link.
func (b *Body) Link() keyserver.HiddenLink { return keyserver.HiddenLink(b.link) }

// Choice returns the hidden link as that of a key or of a line.
func (b *Body) Choice() keyserver.KeyChoice {
	if b.named == "lineage" {
		return keyserver.KeyChoice{Line: b.Link()}
	}
	return keyserver.KeyChoice{Key: b.Link()}
}

// MAC returns the MAC that is to be verified, once the message is written.
func (b *Body) MAC() [keyserver.MACSize]byte { return b.mac }

// Close gives the buffers back, wiped of the message. The body must not be
// used any more.
func (b *Body) Close() {
	clear(b.window[:b.high])
	clear(b.chunk[:min(b.total+slack, chunkSize+slack)])
	if b.spool != nil {
		_ = b.spool.Close() // nameless: closing it is deleting it
	}
	if b.spooled > 0 {
		b.where.Return(b.spooled)
	}
	b.form, b.src, b.where, b.spool, b.spooled, b.named, b.link = nil, nil, Spool{}, nil, 0, "", ""
	b.r, b.w, b.high, b.n, b.total = 0, 0, 0, 0, 0
	b.ended, b.padded, b.hasMAC, b.spent = false, false, false, false
	b.mac = [keyserver.MACSize]byte{}
	b.data = dataAbsent
	bodies.Put(b)
}

var errSpent = errors.New("the message of an HMAC can be written once")

// WriteTo writes the message. It implements keyserver.Message: a fault says
// that the rest of the body turned out to be malformed, and then nothing
// computed from it may be used.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	if b.spent {
		return 0, errSpent
	}
	b.spent = true
	if b.spool != nil {
		return b.unspool(w)
	}
	var written int64
	for {
		if b.n > 0 {
			n, err := w.Write(b.chunk[:b.n])
			written += int64(n)
			if err != nil {
				return written, err
			}
			b.n = 0
		}
		if b.ended {
			return written, nil
		}
		if err := b.flow(); err != nil {
			return written, err
		}
	}
}

// flow decodes one more chunk, and reads the rest of the object behind it.
func (b *Body) flow() error {
	if b.data == dataOpen {
		return b.step()
	}
	return b.members(false)
}

func (b *Body) begin() error {
	c, err := b.token()
	switch {
	case errors.Is(err, errEnd):
		return bad("body", "is empty; send a JSON object with "+b.form.all)
	case err != nil:
		return err
	case c != '{':
		return bad("body", "must be a JSON object")
	}
	return nil
}

// members reads members until the object ends, or until it stands inside a
// data string that must be streamed.
func (b *Body) members(first bool) error {
	for ; ; first = false {
		name, err := b.member(first)
		if err != nil {
			return explain("body", err)
		}
		switch name {
		case "":
			return b.end()
		case memberData:
			err = b.readData()
		case memberMAC:
			err = b.readMAC()
		default:
			err = b.readLink(name)
		}
		if err != nil {
			return explain(name, err)
		}
		if b.data == dataOpen {
			return nil
		}
	}
}

// member reads up to the opening quote of a member's value. No name means that
// the object is closed.
func (b *Body) member(first bool) (string, error) {
	c, err := b.token()
	if err != nil {
		return "", err
	}
	if c == '}' {
		return "", nil
	}
	if !first {
		if c != ',' {
			return "", errSyntax
		}
		if c, err = b.token(); err != nil {
			return "", err
		}
	}
	if c != '"' {
		return "", errSyntax
	}
	name, err := b.name()
	if err != nil {
		return "", err
	}
	return name, b.value(name)
}

func (b *Body) name() (string, error) {
	text, err := b.text()
	if err != nil {
		return "", err
	}
	switch {
	case string(text) == memberData:
		return memberData, once(memberData, b.data != dataAbsent)
	case b.form.mac && string(text) == memberMAC:
		return memberMAC, once(memberMAC, b.hasMAC)
	}
	for _, name := range b.form.names {
		switch {
		case string(text) != name:
		case b.named != "" && b.named != name:
			return "", bad(name, "is sent beside "+b.named+"; send one of them")
		default:
			return name, once(name, b.named == name)
		}
	}
	return "", bad(wire.Quote(string(text)), "is not a member of this request; the members are "+b.form.all)
}

func once(name string, before bool) error {
	if before {
		return bad(name, "is sent twice; send it once")
	}
	return nil
}

func (b *Body) value(name string) error {
	c, err := b.token()
	if err != nil {
		return err
	}
	if c != ':' {
		return errSyntax
	}
	if c, err = b.token(); err != nil {
		return err
	}
	if c != '"' {
		return bad(name, "must be a string of canonical base64, not null and not another type")
	}
	return nil
}

func (b *Body) readLink(name string) error {
	text, err := b.text()
	if err != nil {
		return err
	}
	if err := b.link.UnmarshalText(text); err != nil {
		return bad(name, err.Error())
	}
	b.named = name
	return nil
}

func (b *Body) readMAC() error {
	text, err := b.text()
	if err != nil {
		return err
	}
	mac, err := canonical.Decode(string(text))
	switch {
	case err != nil:
		return bad(memberMAC, "must be canonical base64 (standard alphabet, padded, no line breaks, no stray bits)")
	case len(mac) != len(b.mac):
		return bad(memberMAC, fmt.Sprintf("must stand for %d bytes, not %d; it is never cut short", len(b.mac), len(mac)))
	}
	copy(b.mac[:], mac)
	b.hasMAC = true
	return nil
}

// readData decodes the message as far as the buffer goes. Past that it leaves
// the rest to WriteTo, or spools it where the key is not known yet.
func (b *Body) readData() error {
	b.data = dataOpen
	for b.data == dataOpen {
		if b.n+3 > chunkSize {
			if b.named != "" {
				return nil
			}
			if err := b.spill(); err != nil {
				return err
			}
		}
		if err := b.step(); err != nil {
			return err
		}
	}
	if b.spool == nil {
		return nil
	}
	return b.spill()
}

// end requires that nothing but space follows the object and nothing is missing.
func (b *Body) end() error {
	switch _, err := b.token(); {
	case err == nil:
		return bad("body", "has something after the JSON object; send one object and nothing else")
	case !errors.Is(err, errEnd):
		return err
	case b.named == "":
		return bad(strings.Join(b.form.names, " or "), "is missing; send the canonical base64 of "+b.form.key)
	case b.form.mac && !b.hasMAC:
		return bad(memberMAC, "is missing; send the canonical base64 of the MAC that is to be verified")
	case b.data == dataAbsent:
		return bad(memberData, "is missing; send the canonical base64 of the message, empty for the empty message")
	}
	b.ended = true
	return nil
}

// bad refuses the message. The reason is what the audit trail records where
// the operation had already been allowed.
func bad(field, problem string) error {
	return fault.New(fault.BadRequest, "%s: %s", field, problem).Audited(fault.ReasonBadMessage)
}

var (
	errEnd    = errors.New("the body ends")
	errSyntax = errors.New("not JSON")
)

// explain turns what the scanner met into a refusal that names where.
func explain(field string, err error) error {
	switch {
	case errors.Is(err, errEnd):
		return bad(field, "ends too early; send one complete JSON object")
	case errors.Is(err, errSyntax):
		return bad(field, "is not valid JSON; send one complete JSON object in UTF-8")
	default:
		return err
	}
}

// unquote resolves the escapes of a string, quotes included.
func unquote(text []byte) ([]byte, error) {
	out, err := jsontext.AppendUnquote(make([]byte, 0, len(text)), text)
	if err != nil {
		return nil, errSyntax
	}
	return out, nil
}
