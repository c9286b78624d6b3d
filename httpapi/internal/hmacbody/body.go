// Package hmacbody reads the bodies of POST /api/crypto/hmac, mac and mac/verify: flat
// objects like {hiddenLink, data}. It never holds the entire message. The text of data
// passes through one buffer of fixed size, a base64 decoder and the MAC. No available
// JSON reader can stop inside a string, so this package scans the members itself.
//
// A message that fits into the buffer is checked completely before a MAC is computed. A
// longer one is checked while it is read, and WriteTo fails before its end if it is
// malformed. If data precedes the name of the key, the MAC cannot be computed yet. The
// decoded message is then stored first in the buffer, then in a temporary file without a
// name. A MAC to verify may be before or after the message.
package hmacbody

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
	"github.com/keyserver-operator/keyserver-operator/clients/go/wire"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	memberData = "data"
	memberMAC  = "mac"

	// windowSize is how much of the body is in memory at a time, in bytes.
	windowSize = 64 << 10
	// chunkSize is the number of bytes that a full window decodes to.
	chunkSize = windowSize / 4 * 3
	// slack is extra room after a chunk for a decoder that writes entire blocks.
	slack = 64
	// maxString is the maximum length of a name or hidden link in the
	// body, including escapes.
	maxString = 1 << 10
)

// Body is a request whose body is being read. It must be used by one goroutine at a time.
type Body struct {
	src   io.Reader
	where Spool

	window [windowSize]byte
	r, w   int // the part of the window that is not processed yet
	high   int // maximum used length of the window
	ended  bool

	chunk  [chunkSize + slack]byte
	n      int   // decoded bytes that are not written yet
	total  int64 // all decoded bytes
	padded bool  // the base64 text had padding, so no data may follow
	data   dataState

	form    *Form
	named   string // the member that names the key; empty until that member is read
	link    schema.HiddenLink
	hasMAC  bool
	mac     [keyserver.MACSize]byte
	spool   *os.File
	spooled int64 // bytes that were passed to Spool.Take
	spent   bool
}

// Form describes the members that a body may have in addition to data.
type Form struct {
	all   string   // all members, for errors
	names []string // members that name the key; exactly one of them is sent
	key   string   // describes the name of the key, for errors
	mac   bool
}

// The forms.
var (
	HMAC   = &Form{all: "hiddenLink, data", names: []string{"hiddenLink"}, key: "the hidden link of the key"}
	MAC    = &Form{all: "lineage, data", names: []string{"lineage"}, key: "the hidden link of the first key of the lineage"}
	Verify = &Form{all: "ttag or lineage, mac, data", names: []string{"ttag", "lineage"}, key: "the hidden link of the key, or of the first key of the lineage", mac: true}
)

// Spool stores a message whose key is not known yet.
type Spool struct {
	Dir     string // empty: the system's directory
	Account        // optional
}

// Account limits the bytes of stored messages.
type Account interface {
	// Take is called before n bytes are stored. If it returns an error, the message is refused with this error.
	Take(n int64) error
	// Begin is called before the first byte is stored, after Take. If it returns an error, the message is refused with
	// this error.
	Begin() error
	// Return releases all bytes of a message.
	Return(n int64)
}

type dataState int

const (
	dataAbsent dataState = iota
	dataOpen             // inside the string
	dataClosed           // after its closing quote
)

var bodies = sync.Pool{New: func() any { return new(Body) }}

// Read reads the body until the hidden link is known. It reads a short message
// completely. The caller must call Close. A malformed body is BAD_REQUEST; an error of
// src or of the spool is returned unchanged.
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

// Choice returns the hidden link as the name of a key or of a key lineage.
func (b *Body) Choice() keyserver.KeyChoice {
	if b.named == "lineage" {
		return keyserver.KeyChoice{Lineage: b.Link()}
	}
	return keyserver.KeyChoice{Key: b.Link()}
}

// MAC returns the MAC to verify. It is valid after the message was written.
func (b *Body) MAC() [keyserver.MACSize]byte { return b.mac }

// Close erases the message and returns the buffers to the pool. The body must not
// be used afterwards.
func (b *Body) Close() {
	clear(b.window[:b.high])
	clear(b.chunk[:min(b.total+slack, chunkSize+slack)])
	if b.spool != nil {
		_ = b.spool.Close() // the file has no name, so closing it deletes it
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

var errSpent = errors.New("the message of an HMAC can be written only once")

// WriteTo writes the message. It implements keyserver.Message. If it returns a fault, the end of the body is malformed.
// Then the caller must discard everything that it computed from the message.
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

// flow decodes one more chunk of the message, or reads the members after the message.
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

// members reads members until the object ends, or until it reaches a data string that
// must be streamed.
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

// member reads up to the opening quote of a member's value. It returns "" if
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
			return "", bad(name, "cannot be combined with "+b.named+"; send one of them")
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
		return bad(memberMAC, fmt.Sprintf("must encode exactly %d bytes, not %d", len(b.mac), len(mac)))
	}
	copy(b.mac[:], mac)
	b.hasMAC = true
	return nil
}

// readData decodes the message until the buffer is full. WriteTo later decodes the remaining message. If the key is not
// known yet, readData stores the remaining message instead.
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

// end fails if a member is missing, or if anything except white space follows the object.
func (b *Body) end() error {
	switch _, err := b.token(); {
	case err == nil:
		return bad("body", "has data after the JSON object; send only one object")
	case !errors.Is(err, errEnd):
		return err
	case b.named == "":
		return bad(strings.Join(b.form.names, " or "), "is missing; send the canonical base64 of "+b.form.key)
	case b.form.mac && !b.hasMAC:
		return bad(memberMAC, "is missing; send the MAC to verify, in canonical base64")
	case b.data == dataAbsent:
		return bad(memberData, "is missing; send the message in canonical base64, or an empty string for an empty message")
	}
	b.ended = true
	return nil
}

// bad returns the fault for a malformed message. The audit log records its reason if the operation was already allowed.
func bad(field, problem string) error {
	return fault.New(fault.BadRequest, "%s: %s", field, problem).Audited(fault.ReasonBadMessage)
}

var (
	errEnd    = errors.New("the body ends")
	errSyntax = errors.New("not JSON")
)

// explain turns an error of the scanner into a fault that names the field.
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

// unquote resolves the escapes of a string that includes its quotes.
func unquote(text []byte) ([]byte, error) {
	out, err := jsontext.AppendUnquote(make([]byte, 0, len(text)), text)
	if err != nil {
		return nil, errSyntax
	}
	return out, nil
}
