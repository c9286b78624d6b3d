package routes

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// FaultResponse is the HTTP response to a fault.
type FaultResponse struct {
	Status int
	Reauth bool // a new login may solve the problem
}

// faultResponses maps all codes to statuses. No other code does this. A test compares it with the catalogue of codes.
//
// REQUEST_TIMEOUT is a 504, because a write that reached its time limit may have taken effect. A 503 would promise that
// the write had no effect and that a retry may help. After a 408, clients may repeat the request automatically.
var faultResponses = map[fault.Code]FaultResponse{
	fault.BadRequest:          {Status: http.StatusBadRequest},
	fault.InvalidArgument:     {Status: http.StatusBadRequest},
	fault.SessionNotFound:     {Status: http.StatusUnauthorized, Reauth: true},
	fault.SessionExpired:      {Status: http.StatusUnauthorized, Reauth: true},
	fault.ScopedExpired:       {Status: http.StatusUnauthorized, Reauth: true},
	fault.CertificateMismatch: {Status: http.StatusUnauthorized, Reauth: true},
	fault.CertificateRevoked:  {Status: http.StatusUnauthorized},
	fault.ProofMalformed:      {Status: http.StatusBadRequest},
	// These codes require a new proof, not a new login.
	fault.ProofRequired:          {Status: http.StatusUnauthorized},
	fault.ProofInvalidSignature:  {Status: http.StatusUnauthorized},
	fault.ProofKeyMismatch:       {Status: http.StatusUnauthorized},
	fault.ProofMethodMismatch:    {Status: http.StatusUnauthorized},
	fault.ProofURIMismatch:       {Status: http.StatusUnauthorized},
	fault.ProofTokenMismatch:     {Status: http.StatusUnauthorized},
	fault.ProofStale:             {Status: http.StatusUnauthorized},
	fault.ProofReplayed:          {Status: http.StatusUnauthorized},
	fault.ProofCacheFull:         {Status: http.StatusServiceUnavailable},
	fault.InvalidCredentials:     {Status: http.StatusUnauthorized},
	fault.CheckpointUnsigned:     {Status: http.StatusForbidden},
	fault.CheckpointInconsistent: {Status: http.StatusUnprocessableEntity},
	fault.AccessDenied:           {Status: http.StatusForbidden},
	fault.ACLDenied:              {Status: http.StatusForbidden},
	fault.KeyDisabled:            {Status: http.StatusForbidden},
	fault.KeyExhausted:           {Status: http.StatusConflict},
	fault.PrincipalOff:           {Status: http.StatusForbidden},
	fault.DelegatorRefused:       {Status: http.StatusForbidden},
	fault.RevocationUnavailable:  {Status: http.StatusForbidden},
	fault.RevocationStale:        {Status: http.StatusForbidden},
	fault.NotInScope:             {Status: http.StatusForbidden},
	fault.NotWritable:            {Status: http.StatusForbidden},
	fault.BuiltIn:                {Status: http.StatusForbidden},
	fault.BuiltInPrincipal:       {Status: http.StatusForbidden},
	fault.OwnAccount:             {Status: http.StatusForbidden},
	fault.Escalation:             {Status: http.StatusForbidden},
	fault.ApprovalRequired:       {Status: http.StatusForbidden},
	fault.SessionNotBound:        {Status: http.StatusForbidden},
	fault.KeyNotExportable:       {Status: http.StatusForbidden},
	fault.KeyState:               {Status: http.StatusConflict},
	fault.KeyNotFound:            {Status: http.StatusNotFound},
	fault.NotFound:               {Status: http.StatusNotFound},
	fault.NotTrusted:             {Status: http.StatusNotFound},
	fault.ACLNotFound:            {Status: http.StatusNotFound},
	fault.Archived:               {Status: http.StatusGone},
	fault.MethodNotAllowed:       {Status: http.StatusMethodNotAllowed},
	fault.DutiesConflict:         {Status: http.StatusConflict},
	fault.RewrapRunning:          {Status: http.StatusConflict},
	fault.DigestMismatch:         {Status: http.StatusConflict},
	fault.ApprovalState:          {Status: http.StatusConflict},
	fault.AuthorityState:         {Status: http.StatusConflict},
	fault.ApprovalLimit:          {Status: http.StatusConflict},
	fault.NoFlagWord:             {Status: http.StatusConflict},
	fault.Owned:                  {Status: http.StatusConflict},
	fault.InUse:                  {Status: http.StatusConflict},
	fault.NoPassword:             {Status: http.StatusConflict},
	fault.LastWriter:             {Status: http.StatusConflict},
	fault.AlreadyTrusted:         {Status: http.StatusConflict},
	fault.AlreadyExists:          {Status: http.StatusConflict},
	fault.NotSaved:               {Status: http.StatusConflict},
	fault.NotRemoved:             {Status: http.StatusConflict},
	fault.NotPersisted:           {Status: http.StatusConflict},
	fault.NotVerified:            {Status: http.StatusConflict},
	fault.NoSavedRequest:         {Status: http.StatusConflict},
	fault.PayloadTooLarge:        {Status: http.StatusRequestEntityTooLarge},
	fault.UnsupportedEncoding:    {Status: http.StatusUnsupportedMediaType},
	fault.LoginThrottled:         {Status: http.StatusTooManyRequests},
	fault.OpFailed:               {Status: http.StatusInternalServerError},
	fault.ReadbackFailed:         {Status: http.StatusBadGateway},
	fault.RequestLimit:           {Status: http.StatusServiceUnavailable},
	fault.SessionLimit:           {Status: http.StatusServiceUnavailable},
	fault.Overloaded:             {Status: http.StatusServiceUnavailable},
	fault.BuildNotAdmitted:       {Status: http.StatusServiceUnavailable},
	fault.AuditUnavailable:       {Status: http.StatusServiceUnavailable},
	fault.StoreUnavailable:       {Status: http.StatusServiceUnavailable},
	fault.StoreTampered:          {Status: http.StatusServiceUnavailable},
	fault.NotCurrent:             {Status: http.StatusServiceUnavailable},
	fault.NotReady:               {Status: http.StatusServiceUnavailable},
	fault.PeerUnavailable:        {Status: http.StatusServiceUnavailable},
	fault.ProviderUnavailable:    {Status: http.StatusServiceUnavailable},
	fault.PeerNoAnswer:           {Status: http.StatusGatewayTimeout},
	fault.RequestTimeout:         {Status: http.StatusGatewayTimeout},
}

// Verdicts are the codes of a verified write whose second read did not show the written values. The route returns them
// in its response type, with status 409.
var Verdicts = []fault.Code{fault.NotSaved, fault.NotRemoved, fault.NotPersisted, fault.NotVerified}

// ResponseTo returns the response to a code. Its status is 0 if the code is unknown.
func ResponseTo(c fault.Code) FaultResponse { return faultResponses[c] }

// Status returns the HTTP status of a code, 0 if it is unknown.
func Status(c fault.Code) int { return faultResponses[c].Status }

// ProofFaults are the codes that every route that accepts a proof can return. A login needs no proof. The proof of a
// login is not bound to a session id or a known key.
var ProofFaults = []fault.Code{
	fault.ProofMalformed, fault.ProofInvalidSignature, fault.ProofMethodMismatch,
	fault.ProofURIMismatch, fault.ProofStale, fault.ProofReplayed, fault.ProofCacheFull,
}

// fromSessionFaults are the additional codes of a login from an existing session.
var fromSessionFaults = []fault.Code{
	fault.SessionNotFound, fault.SessionExpired, fault.ScopedExpired, fault.RequestLimit,
	fault.ProofRequired, fault.ProofKeyMismatch, fault.ProofTokenMismatch,
	fault.AccessDenied, fault.PrincipalOff, fault.DelegatorRefused, fault.NotInScope,
	fault.CertificateRevoked, fault.CertificateMismatch, fault.RevocationUnavailable, fault.RevocationStale,
}
