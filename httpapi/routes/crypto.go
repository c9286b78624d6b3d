package routes

import (
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/httpapi/internal/hmacbody"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

const (
	// batchBodyLimit is the maximum size of all messages of a batch together, which are
	// in memory at the same time.
	batchBodyLimit = 1 << 20
	// textBodyLimit is enough for the longest text and associated data, even if each character of their base64 is
	// written as an escape.
	textBodyLimit = (keyserver.MaxPlain+keyserver.MaxAssociated+64)/3*4*6 + SmallBody
)

// cryptoRoutes returns the routes that use key lineages.
func cryptoRoutes() []Route {
	faults := codes(fault.KeyNotFound, fault.ACLDenied, fault.NotInScope, fault.KeyDisabled, fault.InvalidArgument, fault.PeerUnavailable)
	return []Route{
		streamed[schema.MACRequest, schema.MACResponse](Route{
			Name: "computeMac", Method: http.MethodPost, Path: "/api/crypto/mac", Extension: true, Session: true, Counts: true,
			Summary:    "Computes the HMAC-SHA384 of a message with the newest enabled key of a lineage.",
			Operations: grants(keyserver.OpMACData), Faults: faults,
			BodyLimit: HMACBodyLimit, Timeout: time.Minute, Form: hmacbody.MAC,
		}),
		streamed[schema.VerifyMACRequest, schema.VerifyMACResponse](Route{
			Name: "verifyMac", Method: http.MethodPost, Path: "/api/crypto/mac/verify", Extension: true, Session: true, Counts: true,
			Summary:    "Verifies the MAC of a message with one key, or with the keys of a lineage that may verify. A wrong MAC also returns 200.",
			Operations: grants(keyserver.OpVerifyMAC), Faults: faults,
			BodyLimit: HMACBodyLimit, Timeout: time.Minute, Form: hmacbody.Verify,
		}),
		endpoint[schema.MACBatchRequest, schema.MACBatchResponse](Route{
			Name: "computeMacs", Method: http.MethodPost, Path: "/api/crypto/mac/batch", Extension: true, Session: true, Counts: true,
			Summary:    "Computes the MACs of up to 1000 messages. Each item has its own result or code.",
			Operations: grants(keyserver.OpMACData), Faults: codes(fault.NotInScope),
			BodyLimit: batchBodyLimit,
		}),
		endpoint[schema.VerifyMACBatchRequest, schema.VerifyMACBatchResponse](Route{
			Name: "verifyMacs", Method: http.MethodPost, Path: "/api/crypto/mac/verify/batch", Extension: true, Session: true, Counts: true,
			Summary:    "Verifies up to 1000 MACs. Each item has its own result or code.",
			Operations: grants(keyserver.OpVerifyMAC), Faults: codes(fault.NotInScope),
			BodyLimit: batchBodyLimit,
		}),
		endpoint[schema.EncryptRequest, schema.EncryptResponse](Route{
			Name: "encrypt", Method: http.MethodPost, Path: "/api/crypto/encrypt", Extension: true, Session: true, Counts: true,
			Summary:    "Encrypts a plain text with an AES-256 key, using AES-256-GCM.",
			Operations: grants(keyserver.OpEncrypt), Faults: append(codes(fault.KeyExhausted), faults...),
			BodyLimit: textBodyLimit,
		}),
		endpoint[schema.DecryptRequest, schema.DecryptResponse](Route{
			Name: "decrypt", Method: http.MethodPost, Path: "/api/crypto/decrypt", Extension: true, Session: true, Counts: true,
			Summary:    "Decrypts a ciphertext from the encrypt route.",
			Operations: grants(keyserver.OpDecrypt), Faults: faults,
			BodyLimit: textBodyLimit,
		}),
	}
}
