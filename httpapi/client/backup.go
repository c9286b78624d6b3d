package client

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

// backupTime bounds the making of one backup.
const backupTime = 6 * time.Hour

// CreateBackup writes a backup of the database, which only the recipient can open, as it
// comes. After an error what was written is of no use. It is not tried again once
// anything was.
func (c *Client) CreateBackup(ctx context.Context, in schema.BackupRequest, to io.Writer) error {
	r := route{name: "createBackup", method: http.MethodPost, path: "/api/backups"}
	_, err := send[struct{}](ctx, c, call{route: r, target: r.path, body: in, wait: backupTime, to: to})
	return err
}

// handOn gives an answer to whoever takes it, where it is one of docs/contract.md.
func handOn(k call, resp *http.Response) error {
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || got != schema.Octets(nil).MediaType() { // a proxy may answer a page of its own
		return &Error{Status: resp.StatusCode, RequestID: requestID(resp), Detail: fmt.Sprintf("the answer to %s %s is not what the contract says", k.method, k.target)}
	}
	if _, err := io.Copy(k.to, resp.Body); err != nil {
		return &NetworkError{Sent: true, Err: err}
	}
	return nil
}
