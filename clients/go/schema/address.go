package schema

import (
	"errors"
	"net/netip"
)

// IPAddress is an address of IPv4 or IPv6 (RFC 5952) in the same form as in audit
// rows; "" means none.
type IPAddress string

var errIPAddress = errors.New("must be an address of IPv4 or IPv6, without a port, for instance 192.0.2.1")

// MarshalText encodes the address.
func (a IPAddress) MarshalText() ([]byte, error) { return []byte(a), nil }

// UnmarshalText accepts every spelling of an address.
func (a *IPAddress) UnmarshalText(text []byte) error {
	at, err := netip.ParseAddr(string(text))
	if err != nil {
		return errIPAddress
	}
	*a = IPAddress(at.Unmap().WithZone("").String())
	return nil
}
