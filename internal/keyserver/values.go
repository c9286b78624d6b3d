package keyserver

import "github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"

// The values that the API and the server share have the same type in both.
type (
	ID           = values.ID
	SystemID     = values.SystemID
	PrincipalRef = values.PrincipalRef
	HiddenLink   = values.HiddenLink
	Rights       = values.Rights
	Stamp        = values.Stamp
	TrustBlob    = values.TrustBlob
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
