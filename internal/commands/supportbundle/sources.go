package supportbundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	api "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
)

// Service adds the allowed fields of a key server's responses about itself. If loggedIn is false, it sends only
// requests that need no session.
func (w *Writer) Service(ctx context.Context, c *api.Client, loggedIn bool) error {
	answers := []struct {
		name string
		ask  func() (any, error)
		open bool
	}{
		{"ready", func() (any, error) {
			answer, err := c.GetReadiness(ctx)
			if api.IsCode(err, "NOT_READY") {
				err = nil // the response names the parts that are not ready
			}
			return named[ready](answer, err)
		}, true},
		{"version", func() (any, error) { return named[version](c.GetVersion(ctx)) }, false},
		{"settings", func() (any, error) {
			return namedSettings(c.GetConfiguration(ctx, schema.ConfigRequest{XPath: "ROOT"}))
		}, false},
		{"custody", func() (any, error) { return named[custody](c.GetCustody(ctx)) }, false},
		{"authorities", func() (any, error) { return named[authorities](c.ListAuthorities(ctx)) }, false},
		{"trusted-cas", func() (any, error) { return named[trustedCAs](c.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})) }, false},
		{"trusted-servers", func() (any, error) {
			return named[trustedServers](c.ListTrustedServers(ctx, schema.TrustedServersQuery{}))
		}, false},
		{"witness", func() (any, error) { return named[witness](c.GetWitness(ctx)) }, false},
	}
	for _, a := range answers {
		if !a.open && !loggedIn {
			continue
		}
		name := "server/" + a.name + ".json"
		answer, err := a.ask()
		if err == nil {
			err = w.JSON(name, answer)
		} else {
			err = w.Missing(name, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// metricsWithin limits the time to read the metrics of one process.
const metricsWithin = 15 * time.Second

// Metrics adds the allowed metrics of the process at a URL.
func (w *Writer) Metrics(ctx context.Context, name, url string) error {
	text, err := get(ctx, url)
	if err != nil {
		return w.Missing(name, err)
	}
	kept, leftOut, err := namedMetrics(text)
	return w.add(Listed{Name: name, LeftOut: leftOut, Error: w.sentence(err)}, kept)
}

func get(ctx context.Context, url string) (_ []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricsWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response has status %d", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if len(text) > maxFile {
		return nil, fmt.Errorf("the response is longer than %d bytes", maxFile)
	}
	return text, err
}

// Cluster selects the data that is read from a cluster.
type Cluster struct {
	*cluster.Client
	Namespace string // namespace of the operator
	Lines     int64  // number of lines of each log
	// LogTime limits the time to read one log. LogsTime limits the time to read and pack all logs.
	LogTime, LogsTime time.Duration
	// Progress is called with one line about the progress of a long read.
	Progress func(string)
}

// Limits of the data from a cluster.
const (
	maxObjects = 5000 // objects of one kind
	maxPods    = 50
	pageEvents = 500
	maxEvents  = 1000 // the newest ones are packed
	readEvents = 10_000
	maxPages   = 100
	// spare is the number of files that are reserved for sources after the logs of a cluster.
	spare = 100
)

// Cluster adds the conditions of all objects. From the operator's namespace, it adds the Pods, the events and the ends
// of the logs. It reads no Secret.
func (w *Writer) Cluster(ctx context.Context, c Cluster) error {
	for _, kind := range v1beta1.Kinds {
		found, err := c.conditions(ctx, kind)
		if err := w.listed("cluster/"+kind.Resource+".json", found, err); err != nil {
			return err
		}
	}
	events, err := c.events(ctx)
	if err := w.listed("cluster/events.json", events, err); err != nil {
		return err
	}
	pods, err := c.pods(ctx)
	if err := w.listed("cluster/pods.json", namedPods(pods), err); err != nil {
		return err
	}
	var logs []log
	for i := range pods {
		of := logsOf(&pods[i])
		if len(w.files)+len(logs)+len(of) > maxFiles-spare {
			err := w.Missing("logs (the rest)", fmt.Errorf("there are more logs than a bundle can hold; the first omitted log is of the Pod %s", pods[i].Metadata.Name))
			if err != nil {
				return err
			}
			break
		}
		logs = append(logs, of...)
	}
	return w.logs(ctx, c, logs)
}

// listed adds a list. If why is a Cut, it also records that the list is incomplete.
func (w *Writer) listed(name string, list any, why error) error {
	var cut cluster.Cut
	switch {
	case errors.As(why, &cut):
		return errors.Join(w.JSON(name, list), w.Missing(name+" (the rest)", cut))
	case why != nil:
		return w.Missing(name, why)
	}
	return w.JSON(name, list)
}

func (c Cluster) conditions(ctx context.Context, kind v1beta1.Kind) ([]object, error) {
	found := []object{}
	err := cluster.EachObject(ctx, c.Client, kind, maxPages, func(o *cluster.Object) error {
		if len(found) >= maxObjects {
			return cluster.Cut(fmt.Sprintf("there are more than %d objects", maxObjects))
		}
		conditions, err := named[[]condition](o.Status.Conditions, nil)
		found = append(found, object{kind.Name, redacted(o.Metadata.Namespace), redacted(o.Metadata.Name), o.Metadata.Generation, conditions})
		return err
	})
	return found, err
}

// below returns the path of a resource in the namespace of the operator.
func (c Cluster) below(resource string) string {
	return "/api/v1/namespaces/" + c.Namespace + "/" + resource
}

// pods returns at most maxPods Pods, and a Cut if there are more.
func (c Cluster) pods(ctx context.Context) ([]foundPod, error) {
	var list cluster.List[foundPod]
	err := c.Get(ctx, c.below("pods"), url.Values{"limit": {strconv.Itoa(maxPods)}}, &list)
	if err != nil {
		return nil, err
	}
	if list.Metadata.Continue != "" || len(list.Items) > maxPods { // a server can ignore the limit
		err = cluster.Cut(fmt.Sprintf("there are more than %d Pods", maxPods))
	}
	return slices.Clone(list.Items[:min(len(list.Items), maxPods)]), err
}

// events returns the newest maxEvents events, sorted from oldest to newest. If it did not read all events, it also
// returns a Cut.
func (c Cluster) events(ctx context.Context) ([]event, error) {
	all := []event{}
	err := cluster.Each(ctx, c.Client, c.below("events"), maxPages, pageEvents, func(e *foundEvent) error {
		if len(all) >= readEvents {
			return cluster.Cut(fmt.Sprintf("there are more than %d events, and those that were not read may be newer", readEvents))
		}
		all = append(all, namedEvent(e))
		return nil
	})
	slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At.Time) })
	return all[max(len(all)-maxEvents, 0):], err
}

// lastSeen returns the time at which an event was last seen. Components write this time to different fields.
func lastSeen(e *foundEvent) metav1.Time {
	last := e.LastTimestamp.Time
	times := []time.Time{e.FirstTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	for _, at := range times {
		if at.After(last) {
			last = at
		}
	}
	return metav1.NewTime(last)
}

// log identifies the log of a container, or of its previous instance.
type log struct {
	pod, container string
	previous       bool
}

func logsOf(p *foundPod) []log {
	var logs []log
	for _, container := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		logs = append(logs, log{p.Metadata.Name, container.Name, false}, log{p.Metadata.Name, container.Name, true})
	}
	return logs
}

// name returns the file name for a log. without removes credentials before label encodes the name.
func (l log) name(without func(string) string) string {
	name := "logs/" + label(without(l.pod)) + "." + label(without(l.container))
	if l.previous {
		name += ".previous"
	}
	return name + ".log"
}

// logsAtOnce is the number of concurrent reads, so that a read that hangs does not delay others.
const logsAtOnce = 4

// reportEvery is the interval of progress lines.
const reportEvery = 10 * time.Second

// logs adds logs of a cluster in the order of their arrival. At most logsAtOnce logs are in memory.
func (w *Writer) logs(ctx context.Context, c Cluster, logs []log) error {
	ctx, stop := context.WithTimeoutCause(ctx, c.LogsTime, fmt.Errorf("the logs could not be read within %s", c.LogsTime))
	defer stop()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(logsAtOnce)
	var one sync.Mutex // locked while a log is added
	done := 0
	for _, l := range logs {
		readers.Go(func() error {
			text, err := c.log(ctx, l)
			one.Lock()
			defer one.Unlock()
			select {
			case <-tick.C:
				c.Progress(fmt.Sprintf("reading logs: %d of %d", done, len(logs)))
			default:
			}
			done++
			return w.log(l, text, err)
		})
	}
	return readers.Wait()
}

// log adds a log, or the part that was read before an error.
func (w *Writer) log(l log, text []byte, err error) error {
	var answered apierrors.APIStatus
	switch {
	case err == nil || len(text) > 0:
		return w.Log(l.name(w.without), text, err)
	case l.previous && errors.As(err, &answered):
		return nil // the container was never restarted
	}
	return w.Missing(l.name(w.without), err)
}

// log reads the end of a log. It limits the number of lines, because a limit in bytes would keep the beginning.
func (c Cluster) log(ctx context.Context, l log) (_ []byte, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.LogTime, fmt.Errorf("the log could not be read to its end within %s", c.LogTime))
	defer cancel()
	defer func() {
		if err != nil && ctx.Err() != nil { // the cause is more specific than the error of the read
			err = context.Cause(ctx)
		}
	}()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stream, err := c.Stream(ctx, c.below("pods/"+url.PathEscape(l.pod)+"/log"), url.Values{
		"container": {l.container}, "previous": {strconv.FormatBool(l.previous)}, "tailLines": {strconv.FormatInt(c.Lines, 10)},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	return endOf(stream)
}

// endOf returns the last maxFile+1 bytes of r. The additional byte shows that the text must be cut.
func endOf(r io.Reader) ([]byte, error) {
	var text []byte
	for piece := make([]byte, 64<<10); ; {
		n, err := r.Read(piece)
		text = append(text, piece[:n]...)
		if len(text) > 2*maxFile {
			text = append(text[:0], text[len(text)-maxFile-1:]...)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return text[max(len(text)-maxFile-1, 0):], err
	}
}
