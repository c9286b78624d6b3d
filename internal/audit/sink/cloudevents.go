package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	batchType = "application/cloudevents-batch+json; charset=utf-8"
	// maxAnswer is the maximum size of a response in bytes. Its content is ignored.
	maxAnswer   = 64 << 10
	dialTime    = 10 * time.Second
	eventPrefix = "dev.keyserver.audit."
)

// cloudEvent is an event in the CloudEvents 1.0 envelope. Its type is dev.keyserver.audit.row or
// dev.keyserver.audit.seal.
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Time            string          `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	DataSchema      string          `json:"dataschema"`
	Data            json.RawMessage `json:"data"`
}

// schemaOf maps each OCSF class to its URL.
var schemaOf = map[int]string{
	classBase:           "https://schema.ocsf.io/" + SchemaVersion + "/base_event",
	classAuthentication: "https://schema.ocsf.io/" + SchemaVersion + "/classes/authentication",
	classAPIActivity:    "https://schema.ocsf.io/" + SchemaVersion + "/classes/api_activity",
}

// cloudEvents posts batches in the JSON batch format. A complete response with a status 2xx acknowledges the batch.
type cloudEvents struct {
	url     string
	headers http.Header
	client  *http.Client
}

func openCloudEvents(t Target) (*cloudEvents, error) {
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	headers, err := t.headers()
	if err != nil {
		return nil, err
	}
	headers.Set("Content-Type", batchType)
	headers.Set("User-Agent", "keyserver-operator")
	return &cloudEvents{url: t.address, headers: headers, client: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, TLSHandshakeTimeout: dialTime, ForceAttemptHTTP2: true,
			MaxConnsPerHost: 1, MaxResponseHeaderBytes: maxAnswer, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (c *cloudEvents) send(ctx context.Context, b *batch) error {
	body, err := cloudEventsOf(b)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("cannot create a request for it")
	}
	r.Header = c.headers.Clone()
	answer, err := c.client.Do(r)
	if err != nil {
		return sanitizeError(err)
	}
	defer answer.Body.Close() // the response has been read by then
	if answer.StatusCode == http.StatusRequestEntityTooLarge {
		return fmt.Errorf("it responds with status %d: %w", answer.StatusCode, errTooLarge)
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("it responds with status %d", answer.StatusCode)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return errSlow
	case err != nil:
		return errors.New("its response is cut off")
	case n > maxAnswer:
		return fmt.Errorf("its response has more than %d bytes", maxAnswer)
	}
	return nil
}

func (c *cloudEvents) close() { c.client.CloseIdleConnections() }

func cloudEventsOf(b *batch) ([]byte, error) {
	list, err := b.messages()
	if err != nil {
		return nil, err
	}
	source := (&url.URL{Path: b.Log}).EscapedPath()
	events := make([]cloudEvent, len(list))
	for i := range list {
		m := &list[i]
		events[i] = cloudEvent{
			SpecVersion: "1.0", ID: m.id, Source: source, Type: eventPrefix + m.kind,
			Time:            time.UnixMicro(m.micros).UTC().Format(time.RFC3339Nano),
			DataContentType: "application/json", DataSchema: schemaOf[m.ClassUID], Data: m.json,
		}
	}
	return json.Marshal(events)
}
