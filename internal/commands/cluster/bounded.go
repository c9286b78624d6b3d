package cluster

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Limits of each response.
const (
	answerTime = 10 * time.Second
	maxAnswer  = 32 << 20 // bytes; the same as for the verbs of keyserverctl
	maxValues  = 500_000  // JSON values: an object of two bytes takes much more memory when it is decoded
)

// bounded rejects a response that is too long after decompression. Without a limit, the Kubernetes client would keep
// all data of an endless response in memory.
type bounded struct {
	http.RoundTripper
	streams bool // successful responses are streams, which their readers limit
}

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil || b.streams && resp.StatusCode == http.StatusOK {
		return resp, err
	}
	resp.Body = &boundedBody{resp.Body, maxAnswer, maxValues}
	// The client would also decode errors of other media types, but the limit of values counts only JSON.
	if is := resp.Header.Get("Content-Type"); is != "" && !strings.HasPrefix(is, runtime.ContentTypeJSON) {
		resp.Header.Set("Content-Type", "text/plain")
	}
	return resp, nil
}

type boundedBody struct {
	io.ReadCloser
	bytes  int64
	values int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.bytes+1)])
	b.bytes -= int64(n)
	b.values -= bytes.Count(p[:n], []byte(",")) // a comma separates two values
	switch {
	case b.bytes < 0:
		return 0, fmt.Errorf("the response of the cluster is longer than %d MiB", maxAnswer>>20)
	case b.values < 0:
		return 0, fmt.Errorf("the response of the cluster has more than %d values", maxValues)
	}
	return n, err
}
