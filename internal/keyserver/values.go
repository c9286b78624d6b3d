package keyserver

import "github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"

// The API and the server share these types.
type (
	// ID identifies an object.
	ID = values.ID
	// SystemID identifies a key server.
	SystemID = values.SystemID
	// PrincipalRef names a principal of any key server.
	PrincipalRef = values.PrincipalRef
	// HiddenLink is the opaque handle of a key.
	HiddenLink = values.HiddenLink
	// Rights is the bitmask of an ACL entry.
	Rights = values.Rights
	// Stamp is a raw 8-byte time.
	Stamp = values.Stamp
	// TrustBlob registers a key server at another one.
	TrustBlob = values.TrustBlob
)

// The rights bits (contract 3.1).
const (
	Read           = values.Read
	Write          = values.Write
	Owner          = values.Owner
	MandatoryGroup = values.MandatoryGroup
	HostMatrix     = values.HostMatrix
	AllRights      = values.AllRights
)
