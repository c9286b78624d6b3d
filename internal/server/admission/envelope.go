package admission

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// PayloadType is the media type of the payload. The signature covers the media type. So a document of another type that
// is signed with the same key is not accepted as a manifest.
const PayloadType = "application/vnd.keyserver-operator.release+json"

// Limits of an envelope.
const (
	maxEnvelope   = 64 << 10
	maxSignatures = 8 // more than one during a change of the release key
)

// envelope is a DSSE version 1 envelope (secure-systems-lab/dsse, envelope.md).
type envelope struct {
	Payload     string      `json:"payload"` // canonical base64
	PayloadType string      `json:"payloadType"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid,omitempty"` // a hint; it is not used
	Sig   string `json:"sig"`             // canonical base64
}

// Sign signs a manifest and returns its envelope.
func Sign(key ed25519.PrivateKey, m Manifest) ([]byte, error) {
	m.Digests = slices.Clone(m.Digests)
	slices.Sort(m.Digests)
	m.Digests = slices.Compact(m.Digests)
	m.NotBefore, m.NotAfter = m.NotBefore.UTC(), m.NotAfter.UTC()
	if err := m.Validate(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the release manifest: %w", err)
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("the release key is not an Ed25519 key")
	}
	id, err := keyID(public)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(envelope{
		Payload: canonical.Encode(payload), PayloadType: PayloadType,
		Signatures: []signature{{KeyID: id, Sig: canonical.Encode(ed25519.Sign(key, pae(PayloadType, payload)))}},
	}, jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encode the envelope: %w", err)
	}
	return append(text, '\n'), nil
}

// Verify verifies the signature of an envelope and returns its manifest. It parses the payload only after the signature
// is verified. An error is a *Refusal.
func Verify(key ed25519.PublicKey, text []byte) (Manifest, error) {
	e, payload, err := open(text)
	if err != nil {
		return Manifest{}, err
	}
	if e.PayloadType != PayloadType {
		return Manifest{}, refuse(OtherType, nil, "the envelope does not contain a release manifest; its payload type must be %s", PayloadType)
	}
	if !signed(key, e, payload) {
		return Manifest{}, refuse(BadSignature, nil, "the release manifest has no valid signature of the release key")
	}
	var m Manifest
	if err := strict(payload, &m); err != nil {
		return Manifest{}, refuse(Malformed, err, "the payload that the release key signed is not a release manifest")
	}
	return m, m.Validate()
}

func open(text []byte) (e envelope, payload []byte, err error) {
	const what = "the release manifest is not a DSSE envelope"
	if len(text) > maxEnvelope {
		return e, nil, refuse(NoEnvelope, nil, "%s of at most %d bytes", what, maxEnvelope)
	}
	if err := strict(text, &e); err != nil {
		return e, nil, refuse(NoEnvelope, err, what)
	}
	if payload, err = canonical.Decode(e.Payload); err != nil || len(payload) == 0 {
		return e, nil, refuse(NoEnvelope, err, "%s: it has no payload in canonical base64", what)
	}
	if n := len(e.Signatures); n == 0 || n > maxSignatures {
		return e, nil, refuse(NoEnvelope, nil, "%s with 1 to %d signatures", what, maxSignatures)
	}
	return e, payload, nil
}

func signed(key ed25519.PublicKey, e envelope, payload []byte) bool {
	message := pae(e.PayloadType, payload)
	return slices.ContainsFunc(e.Signatures, func(s signature) bool {
		sig, err := canonical.Decode(s.Sig)
		return err == nil && ed25519.Verify(key, message, sig)
	})
}

// strict decodes JSON. It rejects unknown and duplicate members, member names in other letter case, and trailing data,
// because two decoders could interpret such JSON differently.
func strict(text []byte, into any) error {
	return json.Unmarshal(text, into, json.RejectUnknownMembers(true))
}

// pae returns the pre-authentication encoding of DSSE. The signature covers these bytes.
func pae(payloadType string, payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

func keyID(key ed25519.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), nil
}

// Read reads an envelope from a file, but at most maxEnvelope+1 bytes; Verify rejects an envelope of that length. Read
// fails if the file is not a regular file, because opening a pipe would block forever. An error is a *Refusal.
func Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, refuse(Unreadable, err, "the release manifest cannot be read")
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(Unreadable, nil, "the release manifest is not a file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, refuse(Unreadable, err, "the release manifest cannot be read")
	}
	defer func() { _ = f.Close() }() // opened only for reading
	text, err := io.ReadAll(io.LimitReader(f, maxEnvelope+1))
	if err != nil {
		return nil, refuse(Unreadable, err, "the release manifest cannot be read")
	}
	return text, nil
}
