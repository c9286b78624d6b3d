package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
)

// Cluster has the checks of the operator's cluster.
type Cluster struct {
	*cluster.Client
	Namespace string // namespace of the operator
	Lease     string // name of the Lease that managers compete for
	Now       time.Time
}

// Checks returns the checks of a cluster.
func (c Cluster) Checks() []Check {
	checks := []Check{{"definitions", c.definitions}, {"manager", c.manager}}
	for _, kind := range v1beta1.Kinds {
		checks = append(checks, Check{kind.Resource, func(ctx context.Context, found func(string) error) (string, error) {
			return c.objects(ctx, kind, found)
		}})
	}
	return checks
}

// definitions checks that the cluster serves all kinds in the version that the manager of this release needs.
func (c Cluster) definitions(ctx context.Context, found func(string) error) (string, error) {
	list := func(version schema.GroupVersion, kind v1beta1.Kind) error {
		return c.Get(ctx, cluster.PathIn(version, kind), url.Values{"limit": {"1"}}, &cluster.List[struct{}]{})
	}
	for _, kind := range v1beta1.Kinds {
		err := list(v1beta1.GroupVersion, kind)
		if apierrors.IsNotFound(err) {
			problem := " is missing"
			if list(v1beta1.Deprecated, kind) == nil {
				problem = " has no version " + v1beta1.GroupVersion.Version + ", which the manager of this release needs"
			}
			err = found("the CustomResourceDefinition " + kind.CRD() + problem + "; apply config/crd")
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d kinds checked", len(v1beta1.Kinds)), nil
}

// lease has the fields of a Lease that show whether a manager is active.
type lease struct {
	Spec struct {
		HolderIdentity       string            `json:"holderIdentity"`
		RenewTime            *metav1.MicroTime `json:"renewTime"`
		LeaseDurationSeconds *int32            `json:"leaseDurationSeconds"`
	} `json:"spec"`
}

func (c Cluster) manager(ctx context.Context, found func(string) error) (string, error) {
	var lease lease
	err := c.Get(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+c.Namespace+"/leases/"+c.Lease, nil, &lease)
	switch {
	case apierrors.IsNotFound(err):
		return "", found(fmt.Sprintf("there is no Lease %s/%s: no manager with --leader-elect has run", c.Namespace, c.Lease))
	case err != nil:
		return "", err
	case lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil:
		return "", found("no manager is active")
	}
	silent := c.Now.Sub(lease.Spec.RenewTime.Time)
	if silent > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second {
		return "", found(fmt.Sprintf("the manager has not renewed its Lease for %s; see the log of %s", silent.Round(time.Second), lease.Spec.HolderIdentity))
	}
	return "a manager is active", nil
}

// Limits of the check of one kind.
const (
	maxPages    = 5000
	maxFindings = 1000
)

func (c Cluster) objects(ctx context.Context, kind v1beta1.Kind, found func(string) error) (string, error) {
	all, findings := 0, 0
	err := cluster.EachObject(ctx, c.Client, kind, maxPages, func(o *cluster.Object) error {
		all++
		return unready(o, func(line string) error {
			if findings++; findings > maxFindings {
				return cluster.Cut(fmt.Sprintf("there are more than %d findings", maxFindings))
			}
			return found(line)
		})
	})
	var cut cluster.Cut
	if errors.As(err, &cut) {
		err = found("the rest was not checked: " + cut.Error())
	}
	return fmt.Sprintf("%d objects checked", all), err
}

// unready reports an object that is not Ready, with the reason and message of its condition.
func unready(o *cluster.Object, found func(string) error) error {
	name := o.Metadata.Name
	if ns := o.Metadata.Namespace; ns != "" {
		name = ns + "/" + name
	}
	ready := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady)
	switch {
	case ready == nil:
		return found(name + " has no condition Ready: no manager has reconciled it")
	case ready.Status == metav1.ConditionTrue && ready.ObservedGeneration >= o.Metadata.Generation:
		return nil
	case ready.Status == metav1.ConditionTrue:
		return found(name + " was changed and has not been reconciled since")
	}
	return found(fmt.Sprintf("%s is not Ready: %s: %s", name, ready.Reason, ready.Message))
}
