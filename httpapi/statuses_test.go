package httpapi

import "github.com/keyserver-operator/keyserver-operator/internal/platform/fault"

// statuses has the status of each code as a number: the table of contract 22.2.
var statuses = map[fault.Code]int{
	fault.BadRequest:      400,
	fault.InvalidArgument: 400,
	fault.ProofMalformed:  400,

	fault.SessionNotFound:       401,
	fault.SessionExpired:        401,
	fault.ScopedExpired:         401,
	fault.CertificateRevoked:    401,
	fault.CertificateMismatch:   401,
	fault.ProofRequired:         401,
	fault.ProofInvalidSignature: 401,
	fault.ProofKeyMismatch:      401,
	fault.ProofMethodMismatch:   401,
	fault.ProofURIMismatch:      401,
	fault.ProofTokenMismatch:    401,
	fault.ProofStale:            401,
	fault.ProofReplayed:         401,
	fault.InvalidCredentials:    401,

	fault.AccessDenied:           403,
	fault.CheckpointUnsigned:     403,
	fault.CheckpointInconsistent: 422,
	fault.Escalation:             403,
	fault.ApprovalRequired:       403,
	fault.SessionNotBound:        403,
	fault.DigestMismatch:         409,
	fault.ApprovalState:          409,
	fault.AuthorityState:         409,
	fault.Owned:                  409,
	fault.ApprovalLimit:          409,
	fault.DutiesConflict:         409,
	fault.ACLDenied:              403,
	fault.KeyDisabled:            403,
	fault.KeyNotExportable:       403,
	fault.KeyState:               409,
	fault.KeyExhausted:           409,
	fault.PrincipalOff:           403,
	fault.DelegatorRefused:       403,
	fault.RevocationUnavailable:  403,
	fault.RevocationStale:        403,
	fault.NotInScope:             403,
	fault.NotWritable:            403,
	fault.BuiltIn:                403,
	fault.BuiltInPrincipal:       403,
	fault.OwnAccount:             403,

	fault.KeyNotFound: 404,
	fault.NotFound:    404,
	fault.NotTrusted:  404,
	fault.ACLNotFound: 404,

	fault.Archived: 410,

	fault.MethodNotAllowed: 405,

	fault.NoFlagWord:     409,
	fault.InUse:          409,
	fault.RewrapRunning:  409,
	fault.NoPassword:     409,
	fault.LastWriter:     409,
	fault.AlreadyTrusted: 409,
	fault.AlreadyExists:  409,
	fault.NotSaved:       409,
	fault.NotRemoved:     409,
	fault.NotPersisted:   409,
	fault.NotVerified:    409,
	fault.NoSavedRequest: 409,

	fault.PayloadTooLarge: 413,

	fault.UnsupportedEncoding: 415,

	fault.LoginThrottled: 429,

	fault.OpFailed: 500,

	fault.ReadbackFailed: 502,

	fault.ProofCacheFull:      503,
	fault.RequestLimit:        503,
	fault.SessionLimit:        503,
	fault.Overloaded:          503,
	fault.BuildNotAdmitted:    503,
	fault.AuditUnavailable:    503,
	fault.StoreUnavailable:    503,
	fault.StoreTampered:       503,
	fault.NotCurrent:          503,
	fault.NotReady:            503,
	fault.PeerUnavailable:     503,
	fault.ProviderUnavailable: 503,

	fault.PeerNoAnswer:   504,
	fault.RequestTimeout: 504,
}
