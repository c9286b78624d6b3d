package httpapi

import (
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// edge is what the HTTP answer to a fault is.
type edge struct {
	status int
	reauth bool // a new login is what helps
}

// edges is the only place where a code becomes a status. A test walks it and
// the catalogue of codes against each other.
//
// REQUEST_TIMEOUT is a 504 and not a 503: a 503 promises that nothing happened
// and that a retry may help, while a write that ran out of time may have taken
// effect. It is not a 408 either, which lets clients repeat the request unasked.
var edges = map[fault.Code]edge{
	fault.BadRequest:          {status: http.StatusBadRequest},
	fault.InvalidArgument:     {status: http.StatusBadRequest},
	fault.SessionNotFound:     {status: http.StatusUnauthorized, reauth: true},
	fault.SessionExpired:      {status: http.StatusUnauthorized, reauth: true},
	fault.ScopedExpired:       {status: http.StatusUnauthorized, reauth: true},
	fault.CertificateMismatch: {status: http.StatusUnauthorized, reauth: true},
	fault.CertificateRevoked:  {status: http.StatusUnauthorized},
	fault.ProofMalformed:      {status: http.StatusBadRequest},
	// A new proof helps against these, not a new login.
	fault.ProofRequired:          {status: http.StatusUnauthorized},
	fault.ProofInvalidSignature:  {status: http.StatusUnauthorized},
	fault.ProofKeyMismatch:       {status: http.StatusUnauthorized},
	fault.ProofMethodMismatch:    {status: http.StatusUnauthorized},
	fault.ProofURIMismatch:       {status: http.StatusUnauthorized},
	fault.ProofTokenMismatch:     {status: http.StatusUnauthorized},
	fault.ProofStale:             {status: http.StatusUnauthorized},
	fault.ProofReplayed:          {status: http.StatusUnauthorized},
	fault.ProofCacheFull:         {status: http.StatusServiceUnavailable},
	fault.InvalidCredentials:     {status: http.StatusUnauthorized},
	fault.CheckpointUnsigned:     {status: http.StatusForbidden},
	fault.CheckpointInconsistent: {status: http.StatusUnprocessableEntity},
	fault.AccessDenied:           {status: http.StatusForbidden},
	fault.ACLDenied:              {status: http.StatusForbidden},
	fault.KeyDisabled:            {status: http.StatusForbidden},
	fault.KeyExhausted:           {status: http.StatusConflict},
	fault.PrincipalOff:           {status: http.StatusForbidden},
	fault.DelegatorRefused:       {status: http.StatusForbidden},
	fault.RevocationUnavailable:  {status: http.StatusForbidden},
	fault.RevocationStale:        {status: http.StatusForbidden},
	fault.NotInScope:             {status: http.StatusForbidden},
	fault.NotWritable:            {status: http.StatusForbidden},
	fault.BuiltIn:                {status: http.StatusForbidden},
	fault.BuiltInPrincipal:       {status: http.StatusForbidden},
	fault.OwnAccount:             {status: http.StatusForbidden},
	fault.Escalation:             {status: http.StatusForbidden},
	fault.ApprovalRequired:       {status: http.StatusForbidden},
	fault.SessionNotBound:        {status: http.StatusForbidden},
	fault.KeyNotExportable:       {status: http.StatusForbidden},
	fault.KeyState:               {status: http.StatusConflict},
	fault.KeyNotFound:            {status: http.StatusNotFound},
	fault.NotFound:               {status: http.StatusNotFound},
	fault.NotTrusted:             {status: http.StatusNotFound},
	fault.ACLNotFound:            {status: http.StatusNotFound},
	fault.Archived:               {status: http.StatusGone},
	fault.MethodNotAllowed:       {status: http.StatusMethodNotAllowed},
	fault.DutiesConflict:         {status: http.StatusConflict},
	fault.RewrapRunning:          {status: http.StatusConflict},
	fault.DigestMismatch:         {status: http.StatusConflict},
	fault.ApprovalState:          {status: http.StatusConflict},
	fault.AuthorityState:         {status: http.StatusConflict},
	fault.ApprovalLimit:          {status: http.StatusConflict},
	fault.NoFlagWord:             {status: http.StatusConflict},
	fault.Owned:                  {status: http.StatusConflict},
	fault.InUse:                  {status: http.StatusConflict},
	fault.NoPassword:             {status: http.StatusConflict},
	fault.LastWriter:             {status: http.StatusConflict},
	fault.AlreadyTrusted:         {status: http.StatusConflict},
	fault.AlreadyExists:          {status: http.StatusConflict},
	fault.NotSaved:               {status: http.StatusConflict},
	fault.NotRemoved:             {status: http.StatusConflict},
	fault.NotPersisted:           {status: http.StatusConflict},
	fault.NotVerified:            {status: http.StatusConflict},
	fault.NoSavedRequest:         {status: http.StatusConflict},
	fault.PayloadTooLarge:        {status: http.StatusRequestEntityTooLarge},
	fault.UnsupportedEncoding:    {status: http.StatusUnsupportedMediaType},
	fault.LoginThrottled:         {status: http.StatusTooManyRequests},
	fault.OpFailed:               {status: http.StatusInternalServerError},
	fault.ReadbackFailed:         {status: http.StatusBadGateway},
	fault.RequestLimit:           {status: http.StatusServiceUnavailable},
	fault.SessionLimit:           {status: http.StatusServiceUnavailable},
	fault.Overloaded:             {status: http.StatusServiceUnavailable},
	fault.BuildNotAdmitted:       {status: http.StatusServiceUnavailable},
	fault.AuditUnavailable:       {status: http.StatusServiceUnavailable},
	fault.StoreUnavailable:       {status: http.StatusServiceUnavailable},
	fault.StoreTampered:          {status: http.StatusServiceUnavailable},
	fault.NotCurrent:             {status: http.StatusServiceUnavailable},
	fault.NotReady:               {status: http.StatusServiceUnavailable},
	fault.PeerUnavailable:        {status: http.StatusServiceUnavailable},
	fault.ProviderUnavailable:    {status: http.StatusServiceUnavailable},
	fault.PeerNoAnswer:           {status: http.StatusGatewayTimeout},
	fault.RequestTimeout:         {status: http.StatusGatewayTimeout},
}

// verdicts are the codes of a verified write whose re-read disagreed. They
// come with the filled answer, which keeps its shape at 409.
var verdicts = []fault.Code{fault.NotSaved, fault.NotRemoved, fault.NotPersisted, fault.NotVerified}

// Status is the HTTP status of a code.
func Status(c fault.Code) int { return edges[c].status }
