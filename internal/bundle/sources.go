package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// maxObjects bounds the conditions of one kind.
const maxObjects = 5000

// Cluster adds the conditions of all objects, and of the operator's namespace its Pods, their
// events, and the ends of their logs. No Secret is read.
func (w *Writer) Cluster(ctx context.Context, c Cluster) error {
	for _, kind := range v1alpha1.Kinds {
		name := "cluster/" + kind.Resource + ".json"
		found, err := c.conditions(ctx, kind)
		if err == nil {
			err = w.JSON(name, found)
		} else {
			err = w.Missing(name, err)
		}
		if err != nil {
			return err
		}
	}
	if err := w.events(ctx, c); err != nil {
		return err
	}
	pods, err := c.Pods.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{Limit: 50})
	if err != nil {
		return w.Missing("cluster/pods.json", err)
	}
	about := make([]pod, len(pods.Items))
	for i := range pods.Items {
		about[i] = podOf(&pods.Items[i])
	}
	if err := w.JSON("cluster/pods.json", about); err != nil {
		return err
	}
	for i := range pods.Items {
		if err := w.logs(ctx, c, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) conditions(ctx context.Context, kind v1alpha1.Kind) ([]condition, error) {
	list := kind.NewList()
	if err := c.Objects.List(ctx, list, client.Limit(maxObjects)); err != nil {
		return nil, err
	}
	found := []condition{}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if object, ok := o.(metav1.Object); ok {
			found = append(found, condition{kind.Name, object.GetNamespace(), object.GetName(), object.GetGeneration(), doctor.ConditionsOf(o)})
		}
		return nil
	})
	return found, err
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

func (w *Writer) events(ctx context.Context, c Cluster) error {
	list, err := c.Pods.CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{Limit: 1000})
	if err != nil {
		return w.Missing("cluster/events.json", err)
	}
	all := []event{}
	for _, e := range list.Items {
		all = append(all, event{e.LastTimestamp, e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name, e.Reason, e.Message, e.Count})
	}
	return w.JSON("cluster/events.json", all)
}

func (w *Writer) logs(ctx context.Context, c Cluster, p *corev1.Pod) error {
	for _, container := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		for _, previous := range []bool{false, true} {
			name := "logs/" + p.Name + "." + container.Name + ".log"
			if previous {
				name = "logs/" + p.Name + "." + container.Name + ".previous.log"
			}
			limit := int64(maxFile)
			text, err := c.Pods.CoreV1().Pods(c.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
				Container: container.Name, Previous: previous, TailLines: &c.Lines, LimitBytes: &limit, Timestamps: true,
			}).DoRaw(ctx)
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
