package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	cosignature "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// Remote is a witness of this key server's audit tree.
type Remote interface {
	// Verifier returns the verifier of the cosignatures. Its name is the name of the witness.
	Verifier() note.Verifier
	// AddCheckpoint returns the signature lines of a cosignature. It fails with a keyserver.StaleCheckpointError if the
	// witness has cosigned another size than r.Old, or with the fault CHECKPOINT_INCONSISTENT.
	AddCheckpoint(ctx context.Context, r Request) ([]byte, error)
	// ReportConflict sends the witness a checkpoint that it cannot cosign: the tree is smaller than the size that the
	// witness has cosigned, or the checkpoint is not from this log.
	ReportConflict(ctx context.Context, r Request)
}

// Limits of requests to witnesses.
const (
	askTime   = 10 * time.Second
	maxAnswer = 4 << 10
	// MaxWitnesses is the maximum number of witnesses. If --witness is given more often, it is an error. Further peers are
	// ignored.
	MaxWitnesses = 32
)

// httpWitness is a witness with an HTTP API.
type httpWitness struct {
	url      string
	verifier note.Verifier
	client   *http.Client
}

// ParseRemote parses URL=VKEY.
func ParseRemote(spec string, client *http.Client) (Remote, error) {
	// A key also contains equals signs, so the URL ends at the first equals sign. The key is a name, eight digits and a
	// base64 text, separated by plus signs.
	at, key, found := strings.Cut(spec, "=")
	u, err := url.Parse(at)
	if !found || err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("it must be URL=VKEY: a URL without user, query and fragment, and the key of the witness in the C2SP signed-note format, for example https://witness.example=witness.example+1a2b3c4d+BASE64")
	}
	verifier, err := cosignature.NewVerifierForCosignatureV1(key)
	if err != nil {
		return nil, fmt.Errorf("the key of the witness at %s does not have the C2SP signed-note format: %w", urltext.Origin(at), err)
	}
	return &httpWitness{url: strings.TrimSuffix(at, "/") + "/add-checkpoint", verifier: verifier, client: client}, nil
}

// Client returns the HTTP client for witnesses. It follows no redirects.
func Client() *http.Client {
	return &http.Client{
		Timeout:       askTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (s *httpWitness) Verifier() note.Verifier { return s.verifier }

// ReportConflict does nothing: C2SP tlog-witness has no message for a conflict.
func (s *httpWitness) ReportConflict(context.Context, Request) {}

func (s *httpWitness) AddCheckpoint(ctx context.Context, r Request) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(r.Marshal()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	switch {
	case len(body) > maxAnswer && resp.StatusCode == http.StatusOK:
		return nil, fmt.Errorf("the response has more than %d bytes", maxAnswer)
	case resp.StatusCode == http.StatusOK:
		return body, nil
	case resp.StatusCode == http.StatusConflict && resp.Header.Get("Content-Type") == "text/x.tlog.size":
		size, err := parseSize(strings.TrimSuffix(string(body), "\n"))
		if err != nil {
			return nil, err
		}
		return nil, keyserver.StaleCheckpointError{Size: size}
	case resp.StatusCode == http.StatusUnprocessableEntity, resp.StatusCode == http.StatusConflict:
		return nil, fault.New(fault.CheckpointInconsistent, "the witness reports that the tree does not continue the tree that it has cosigned")
	}
	return nil, fmt.Errorf("it responds with %s", resp.Status)
}
