package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
)

// Client sends requests to the API of a cluster.
type Client struct{ answers, streams *rest.RESTClient }

// Connect returns a client of the cluster that the flags name. It fails if the cluster does not respond, because
// otherwise every later request would wait for the cluster.
func (o *Options) Connect(ctx context.Context) (*Client, error) {
	config, err := Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	err = to(c.answers, "/version", nil).Do(ctx).Error()
	var refused apierrors.APIStatus
	if err != nil && !errors.As(err, &refused) { // a rejection is also a response
		return nil, fmt.Errorf("the cluster at %s does not respond: %w", config.Host, err)
	}
	return c, nil
}

// New returns a client with limited responses. It changes config.
func New(config *rest.Config) (*Client, error) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the commands print each error once
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.QPS = -1 // the API server limits requests fairly
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	answers, streams := rest.CopyConfig(config), config
	answers.Timeout = answerTime
	answers.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, false} })
	streams.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next, true} })
	var c Client
	var err error
	if c.answers, err = rest.UnversionedRESTClientFor(answers); err != nil {
		return nil, err
	}
	c.streams, err = rest.UnversionedRESTClientFor(streams)
	return &c, err
}

func to(c *rest.RESTClient, path string, query url.Values) *rest.Request {
	request := c.Get().AbsPath(path)
	for name, values := range query {
		request = request.Param(name, values[0])
	}
	return request
}

// Get sends a request and decodes the response into into. If a query parameter has several values, it uses the first.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	result := to(c.answers, path, query).Do(ctx)
	if err := result.Error(); err != nil { // unlike DoRaw, this error has the message of the API server
		return err
	}
	raw, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// Stream returns the body of a response. The caller limits and closes it.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return to(c.streams, path, query).Stream(ctx)
}

// List has the fields of a list that are needed to read page by page, and its items.
type List[T any] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// Object has the fields of an object that doctor and a support bundle use.
type Object struct {
	Metadata struct {
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		Generation int64  `json:"generation"`
	} `json:"metadata"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// PathIn returns the path of all objects of a kind in a version.
func PathIn(version schema.GroupVersion, kind v1beta1.Kind) string {
	return "/apis/" + version.String() + "/" + kind.Resource
}

// Cut is the reason why a list was not read to its end.
type Cut string

func (c Cut) Error() string { return string(c) }

// pageOfObjects is the number of objects of a page: a response with more may be too long.
const pageOfObjects = 100

// Each reads a list page by page and calls do for each item, until do returns an error. It returns a Cut if the list
// has more than the given number of pages, or if a page is repeated.
func Each[T any](ctx context.Context, c *Client, path string, pages, perPage int, do func(*T) error) error {
	next := ""
	for range pages {
		query := url.Values{"limit": {strconv.Itoa(perPage)}}
		if next != "" {
			query.Set("continue", next)
		}
		var list List[T]
		if err := c.Get(ctx, path, query, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
		switch after := list.Metadata.Continue; after {
		case "":
			return nil
		case next:
			return Cut("the cluster returns the same page repeatedly")
		default:
			next = after
		}
	}
	return Cut(fmt.Sprintf("there are more than %d pages", pages))
}

// EachObject is Each for the objects of a kind. The CRDs of an older release have only the deprecated version.
func EachObject(ctx context.Context, c *Client, kind v1beta1.Kind, pages int, do func(*Object) error) error {
	err := Each(ctx, c, PathIn(v1beta1.GroupVersion, kind), pages, pageOfObjects, do)
	if apierrors.IsNotFound(err) {
		err = Each(ctx, c, PathIn(v1beta1.Deprecated, kind), pages, pageOfObjects, do)
	}
	return err
}
