// Package bucket runs an S3 server in the process of a test.
package bucket

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	_ "gocloud.dev/blob/s3blob" // registers the URL scheme

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// New returns the URL of an empty bucket, and a function that stops the server. It sets the credentials in the
// environment, which processes of the test inherit.
func New(t *testing.T) (address string, away func()) {
	t.Helper()
	backend := s3mem.New()
	rig.Must(t, backend.CreateBucket("keys"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	query := url.Values{"region": {"us-east-1"}, "endpoint": {server.URL}, "use_path_style": {"true"}}
	return "s3://keys?" + query.Encode(), server.Close
}
