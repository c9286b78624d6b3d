package httpapi

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a ResponseWriter that costs nothing, so that the benchmark measures only the API.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkEdge measures the cost of the API for an operation that does nothing: session,
// decode, call, encode, headers, metrics. There is no network.
func BenchmarkEdge(b *testing.B) {
	message := base64.StdEncoding.EncodeToString(make([]byte, 64))
	for name, tc := range map[string]struct{ method, target, body string }{
		"health":    {http.MethodGet, "/api/health", ""},
		"hmac-64B":  {http.MethodPost, "/api/crypto/hmac", `{"hiddenLink":"` + aLink.Base64() + `","data":"` + message + `"}`},
		"authorize": {http.MethodPost, "/api/keys/authorize", `{"ttag":"` + aLink.Base64() + `","filename":"a"}`},
		"refused":   {http.MethodPost, "/api/keys/authorize", `{"ttag":"` + aLink.Base64() + `","filename":1}`},
		"acl-grant": {http.MethodPost, "/api/keys/acl/grant", `{"ttag":"` + aLink.Base64() + `","systemId":1,"principalId":"1001","rights":["READ"]}`},
	} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b)
			r := httptest.NewRequest(tc.method, tc.target, nil)
			r.Header.Set("Authorization", "Bearer "+testToken)
			w := &discard{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				f.ops.calls = f.ops.calls[:0]
				r.Body = io.NopCloser(strings.NewReader(tc.body))
				f.api.ServeHTTP(w, r)
			}
		})
	}
}
