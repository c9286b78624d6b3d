package client

import (
	"context"
	"net/http"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
)

const templatedDirectories = "/api/templated-directories"

// TemplatedDirectories lists the templated directories: all of them, or those
// that the query selects. None is an empty list and no error.
func (c *Client) TemplatedDirectories(ctx context.Context, q schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error) {
	return get[schema.TemplatedDirectoryList](ctx, c, templatedDirectories+query(q))
}

// CreateTemplatedDirectory applies an ACL template to keys under a path.
// NOT_SAVED, with the answer filled, where it does not read back.
func (c *Client) CreateTemplatedDirectory(ctx context.Context, in schema.CreateTemplatedDirectoryRequest) (schema.TemplatedDirectorySaved, error) {
	return send[schema.TemplatedDirectorySaved](ctx, c, call{method: http.MethodPost, path: templatedDirectories, nameless: true, body: in})
}

// DeleteTemplatedDirectory deletes a directory. NOT_REMOVED, with the answer
// filled, where a fresh read still shows it.
func (c *Client) DeleteTemplatedDirectory(ctx context.Context, id string) (schema.TemplatedDirectoryGone, error) {
	path, err := hexPath(templatedDirectories, id)
	if err != nil {
		return schema.TemplatedDirectoryGone{}, err
	}
	return send[schema.TemplatedDirectoryGone](ctx, c, call{method: http.MethodDelete, path: path})
}
