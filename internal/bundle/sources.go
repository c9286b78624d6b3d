package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	api "github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/doctor"
)

// Service adds what a key server says of itself. loggedIn: more than what strangers may ask
// can be.
func (w *Writer) Service(ctx context.Context, c *api.Client, loggedIn bool) error {
	answers := []struct {
		name string
		ask  func() (any, error)
		open bool
	}{
		{"ready", func() (any, error) {
			ready, err := c.GetReadiness(ctx)
			if api.IsCode(err, "NOT_READY") {
				err = nil // which is what is to be seen
			}
			return ready, err
		}, true},
		{"version", func() (any, error) { return c.GetVersion(ctx) }, false},
		// What of the settings may leave is decided by the key server.
		{"settings", func() (any, error) { return c.GetConfiguration(ctx, schema.ConfigRequest{XPath: "ROOT"}) }, false},
		{"custody", func() (any, error) { return c.GetCustody(ctx) }, false},
		{"authorities", func() (any, error) { return c.ListAuthorities(ctx) }, false},
		{"trusted-cas", func() (any, error) { return c.ListTrustedCAs(ctx, schema.TrustedCAsQuery{}) }, false},
		{"trusted-servers", func() (any, error) { return c.ListTrustedServers(ctx, schema.TrustedServersQuery{}) }, false},
		{"witness", func() (any, error) { return c.GetWitness(ctx) }, false},
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

// metricsWithin bounds what a process takes to show its metrics.
const metricsWithin = 15 * time.Second

// Metrics adds what a process measures.
func (w *Writer) Metrics(ctx context.Context, name, url string) error {
	text, err := get(ctx, url)
	if err != nil {
		return w.Missing(name, err)
	}
	return w.Text(name, text)
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
		return nil, fmt.Errorf("it answers with status %d", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if len(text) > maxFile {
		return nil, fmt.Errorf("it answers with more than %d bytes", maxFile)
	}
	return text, err
}

// Cluster is what is read of a cluster.
type Cluster struct {
	Objects   client.Reader
	Pods      kubernetes.Interface
	Namespace string // of the operator
	Lines     int64  // of each log
}

// condition is an object without what it declares, which may be nobody's business.
type condition struct {
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace,omitempty"`
	Name       string             `json:"name"`
	Generation int64              `json:"generation"`
	Conditions []metav1.Condition `json:"conditions"`
}

// Bounds of what is read of a cluster.
const (
	maxObjects = 5000 // conditions of one kind
	maxPods    = 50
	maxEvents  = 1000 // the newest of as many as are read
	readEvents = 10_000
	// spare is how many files are left to what comes after the logs of a cluster.
	spare = 100
)

// Cluster adds the conditions of all objects, and of the operator's namespace its Pods, their
// events, and the ends of their logs. No Secret is read.
func (w *Writer) Cluster(ctx context.Context, c Cluster) error {
	for _, kind := range v1alpha1.Kinds {
		name := "cluster/" + kind.Resource + ".json"
		found, more, err := c.conditions(ctx, kind)
		if err == nil {
			err = w.JSON(name, found)
		} else {
			err = w.Missing(name, err)
		}
		if err == nil && more {
			err = w.Missing(name+" (the rest)", fmt.Errorf("there are more than %d objects", maxObjects))
		}
		if err != nil {
			return err
		}
	}
	if err := w.events(ctx, c); err != nil {
		return err
	}
	pods, err := c.Pods.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{Limit: maxPods})
	if err != nil {
		return w.Missing("cluster/pods.json", err)
	}
	if pods.Continue != "" {
		if err := w.Missing("cluster/pods.json (the rest)", fmt.Errorf("there are more than %d Pods", maxPods)); err != nil {
			return err
		}
	}
	about := make([]pod, len(pods.Items))
	for i := range pods.Items {
		about[i] = podOf(&pods.Items[i])
	}
	if err := w.JSON("cluster/pods.json", about); err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if len(w.files)+2*(len(p.Spec.InitContainers)+len(p.Spec.Containers)) > maxFiles-spare {
			return w.Missing("logs (the rest)", fmt.Errorf("there are more logs than a bundle takes; the first that is not here is of the Pod %s", p.Name))
		}
		if err := w.logs(ctx, c, p); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) conditions(ctx context.Context, kind v1alpha1.Kind) (_ []condition, more bool, _ error) {
	list := kind.NewList()
	if err := c.Objects.List(ctx, list, client.Limit(maxObjects)); err != nil {
		return nil, false, err
	}
	found := []condition{}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if object, ok := o.(metav1.Object); ok {
			found = append(found, condition{kind.Name, object.GetNamespace(), object.GetName(), object.GetGeneration(), doctor.ConditionsOf(o)})
		}
		return nil
	})
	return found, list.GetContinue() != "", err
}

// pod is a Pod without its environment and arguments, which may name what is nobody's business.
type pod struct {
	Name       string                   `json:"name"`
	Node       string                   `json:"node"`
	Phase      corev1.PodPhase          `json:"phase"`
	Conditions []corev1.PodCondition    `json:"conditions"`
	Containers []corev1.ContainerStatus `json:"containers"`
}

func podOf(p *corev1.Pod) pod {
	return pod{p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.Conditions, append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...)}
}

type event struct {
	At      metav1.Time `json:"at"`
	Object  string      `json:"object"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
	Count   int32       `json:"count"`
}

// events adds the newest, oldest first.
func (w *Writer) events(ctx context.Context, c Cluster) error {
	all := []event{}
	for next := ""; ; {
		list, err := c.Pods.CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{Limit: maxEvents, Continue: next})
		if err != nil {
			return w.Missing("cluster/events.json", err)
		}
		for i := range list.Items {
			e := &list.Items[i]
			all = append(all, event{lastSeen(e), e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name, e.Reason, e.Message, max(e.Count, countOf(e.Series))})
		}
		if next = list.Continue; next == "" || len(all) >= readEvents {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.At.Compare(b.At.Time) })
	return w.JSON("cluster/events.json", all[max(len(all)-maxEvents, 0):])
}

// lastSeen is when it happened last: components say it by different fields.
func lastSeen(e *corev1.Event) metav1.Time {
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

func countOf(s *corev1.EventSeries) int32 {
	if s == nil {
		return 1
	}
	return s.Count
}

func (w *Writer) logs(ctx context.Context, c Cluster, p *corev1.Pod) error {
	for _, container := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		for _, previous := range []bool{false, true} {
			name := "logs/" + p.Name + "." + container.Name + ".log"
			if previous {
				name = "logs/" + p.Name + "." + container.Name + ".previous.log"
			}
			text, err := c.log(ctx, p.Name, container.Name, previous)
			switch {
			case err == nil:
				err = w.Text(name, text)
			case previous:
				err = nil // it has not been restarted
			default:
				err = w.Missing(name, err)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// log reads the end of a log. A limit in bytes would be one of the beginning of it.
func (c Cluster) log(ctx context.Context, pod, container string, previous bool) (_ []byte, err error) {
	stream, err := c.Pods.CoreV1().Pods(c.Namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &c.Lines, Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	return endOf(stream)
}

// endOf is the end of what is read, one byte longer than what is kept of it where it was cut.
func endOf(r io.Reader) ([]byte, error) {
	var text []byte
	for piece := make([]byte, 64<<10); ; {
		n, err := r.Read(piece)
		text = append(text, piece[:n]...)
		if len(text) > 2*maxFile {
			text = append(text[:0], text[len(text)-maxFile-1:]...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return text[max(len(text)-maxFile-1, 0):], nil
		case err != nil:
			return nil, err
		}
	}
}
