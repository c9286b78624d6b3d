package values

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/canonical"
)

// Bounds of a trust blob.
const (
	MaxTrustBlob  = 64 << 10 // characters of the complete blob
	MaxServerName = 253      // as a DNS name
)

// TrustBlob is the text by which a key server is registered at another one (contract
// 5.6). The chain is opaque here; package pki parses it.
type TrustBlob struct {
	System     SystemID
	ServerName string // host name or address
	Port       uint16 // of the external listener, never zero
	Chain      []byte // PKCS#7, DER
}

// ErrTrustBlob is the error that every parse error of a blob wraps.
var ErrTrustBlob = errors.New("malformed trust blob")

// badBlob returns a one-sentence error that never quotes the blob, because the text may
// be a secret that was pasted by mistake.
func badBlob(format string, args ...any) error {
	return &blobError{fmt.Sprintf(format, args...)}
}

type blobError struct{ sentence string }

func (e *blobError) Error() string { return e.sentence }
func (e *blobError) Unwrap() error { return ErrTrustBlob }

// ParseTrustBlob parses the four fields. Each blob has exactly one valid text, so String
// returns the parsed text unchanged.
func ParseTrustBlob(text string) (TrustBlob, error) {
	if len(text) > MaxTrustBlob {
		return TrustBlob{}, badBlob("must have at most %d characters", MaxTrustBlob)
	}
	fields := strings.Split(text, "\t")
	if len(fields) != 4 {
		return TrustBlob{}, badBlob("must have four fields separated by tabs (system id, server name, external listener port, base64 PKCS#7 chain); it has %d", len(fields))
	}
	var b TrustBlob
	system, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil || strconv.FormatUint(system, 10) != fields[0] {
		return TrustBlob{}, badBlob("must begin with the system id, a decimal number from 0 to 4294967295 without leading zeros")
	}
	b.System, b.ServerName = SystemID(system), fields[1]
	if !ValidServerName(b.ServerName) {
		return TrustBlob{}, badBlob("must have a host name or an IP address of at most %d characters as its second field, the server name", MaxServerName)
	}
	port, err := strconv.ParseUint(fields[2], 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != fields[2] {
		return TrustBlob{}, badBlob("must have a decimal number from 1 to 65535 without leading zeros as its third field, the external listener port")
	}
	b.Port = uint16(port)
	if b.Chain, err = canonical.Decode(fields[3]); err != nil || len(b.Chain) == 0 {
		return TrustBlob{}, badBlob("must have canonical base64 without line breaks as its fourth field, the PKCS#7 chain")
	}
	return b, nil
}

// String returns the text of the blob.
func (b TrustBlob) String() string {
	return strings.Join([]string{
		strconv.FormatUint(uint64(b.System), 10), b.ServerName, strconv.FormatUint(uint64(b.Port), 10), canonical.Encode(b.Chain),
	}, "\t")
}

// ValidServerName reports whether other key servers can use a name: an IP address without
// zone, or a host name of letters, digits, hyphens, underscores and dots.
func ValidServerName(name string) bool {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Zone() == ""
	}
	if name == "" || len(name) > MaxServerName {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || strings.IndexFunc(label, notInHostName) >= 0 {
			return false
		}
	}
	return true
}

func notInHostName(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}
