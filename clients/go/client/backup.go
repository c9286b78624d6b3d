package client

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

const backupTime = 6 * time.Hour

// CreateBackup streams a backup of the database to a writer. Only the recipient can
// decrypt it. After an error, the written part is useless. CreateBackup does not retry
// once it has written anything.
func (c *Client) CreateBackup(ctx context.Context, in schema.BackupRequest, to io.Writer) error {
	r := route{name: "createBackup", method: http.MethodPost, path: "/api/backups"}
	_, err := send[struct{}](ctx, c, call{route: r, target: r.path, body: in, wait: backupTime, to: to})
	return err
}

// copyResponse copies a response to k.to. It fails if its media type is not the one in docs/contract.md.
func copyResponse(k call, resp *http.Response) error {
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || got != schema.Octets(nil).MediaType() { // a proxy may send its own page
		return &Error{Status: resp.StatusCode, RequestID: requestID(resp), Detail: fmt.Sprintf("the response to %s %s does not match the API contract", k.method, k.target)}
	}
	if _, err := io.Copy(k.to, resp.Body); err != nil {
		return &NetworkError{Sent: true, Err: err}
	}
	return nil
}
