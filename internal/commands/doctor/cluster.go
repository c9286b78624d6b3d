package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// Cluster is where the operator runs.
type Cluster struct {
	client.Reader
	Namespace string // of the operator
	Lease     string // that managers compete for
	Now       time.Time
}

// PageOf is how many objects are read at once: an answer with more may be too long.
const PageOf = 100

// Checks are those of a cluster.
func (c Cluster) Checks() []Check {
	checks := []Check{{"definitions", c.definitions}, {"manager", c.manager}}
	for _, kind := range v1alpha1.Kinds {
		checks = append(checks, Check{kind.Resource, func(ctx context.Context, found func(string) error) (string, error) {
			return c.objects(ctx, kind, found)
		}})
	}
	return checks
}

// definitions are looked at by what the cluster serves.
func (c Cluster) definitions(ctx context.Context, found func(string) error) (string, error) {
	for _, kind := range v1alpha1.Kinds {
		err := c.List(ctx, kind.NewList(), client.Limit(1))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			err = found("the cluster does not know " + kind.CRD() + ": apply config/crd")
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("the cluster knows %d kinds", len(v1alpha1.Kinds)), nil
}

func (c Cluster) manager(ctx context.Context, found func(string) error) (string, error) {
	var lease coordinationv1.Lease
	err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Lease}, &lease)
	switch {
	case apierrors.IsNotFound(err):
		return "", found(fmt.Sprintf("there is no Lease %s/%s: no manager with --leader-elect has run", c.Namespace, c.Lease))
	case err != nil:
		return "", err
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil:
		return "", found("no manager is active")
	}
	silent := c.Now.Sub(lease.Spec.RenewTime.Time)
	if silent > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second {
		return "", found(fmt.Sprintf("the manager has been silent for %s; see the log of %s", silent.Round(time.Second), *lease.Spec.HolderIdentity))
	}
	return "a manager is active", nil
}

// Bounds of what is said of one kind.
const (
	maxPages    = 5000
	maxFindings = 1000
)

func (c Cluster) objects(ctx context.Context, kind v1alpha1.Kind, found func(string) error) (string, error) {
	all, findings := 0, 0
	err := Pages(maxPages, func(next string) (string, error) {
		list := kind.NewList()
		if err := c.List(ctx, list, client.Limit(PageOf), client.Continue(next)); err != nil {
			return "", err
		}
		return list.GetContinue(), meta.EachListItem(list, func(o runtime.Object) error {
			all++
			return unready(o, func(line string) error {
				if findings++; findings > maxFindings {
					return Cut(fmt.Sprintf("there are more than %d findings", maxFindings))
				}
				return found(line)
			})
		})
	})
	var cut Cut
	if errors.As(err, &cut) {
		err = found("the rest was not looked at: " + cut.Error())
	}
	return fmt.Sprintf("%d objects were looked at", all), err
}

// Cut says why a list was not read to its end, which may have none.
type Cut string

func (c Cut) Error() string { return string(c) }

// Pages has a list read, page by page, to its end, or until a Cut. read answers with what
// the cluster calls the next page.
func Pages(most int, read func(next string) (after string, err error)) error {
	next := ""
	for range most {
		after, err := read(next)
		switch {
		case err != nil || after == "":
			return err
		case after == next:
			return Cut("the cluster answers with the same page again and again")
		}
		next = after
	}
	return Cut(fmt.Sprintf("there are more than %d pages", most))
}

// unready finds an object that is not Ready, and says what its condition does.
func unready(o runtime.Object, found func(string) error) error {
	object, ok := o.(metav1.Object)
	if !ok {
		return nil
	}
	name := object.GetName()
	if ns := object.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	ready := meta.FindStatusCondition(ConditionsOf(o), v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return found(name + " has no condition Ready: no manager has looked at it")
	case ready.Status == metav1.ConditionTrue && ready.ObservedGeneration >= object.GetGeneration():
		return nil
	case ready.Status == metav1.ConditionTrue:
		return found(name + " was changed and not looked at since")
	}
	return found(fmt.Sprintf("%s is not Ready: %s: %s", name, ready.Reason, ready.Message))
}

// ConditionsOf are the conditions of an object of ours.
func ConditionsOf(o runtime.Object) []metav1.Condition {
	switch object := o.(type) {
	case *v1alpha1.KeyServer:
		return object.Status.Conditions
	case interface {
		Managed() (*v1alpha1.ManagedSpec, *v1alpha1.ManagedStatus)
	}:
		_, status := object.Managed()
		return status.Conditions
	}
	return nil
}
