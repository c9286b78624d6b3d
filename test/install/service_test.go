package install

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The one Pod is in its Service whether its manager is ready or not. Of several Pods, the ready ones are.
func TestWhoIsInTheService(t *testing.T) {
	for name, want := range map[string]bool{defaults: true, postgres: false, postgresHA: false} {
		for _, s := range typed[corev1.Service](t, build(t, name), "Service") {
			if s.Name == "keyserver" && s.Spec.PublishNotReadyAddresses != want {
				t.Errorf("%s: publishNotReadyAddresses is %t", name, s.Spec.PublishNotReadyAddresses)
			}
		}
	}
}

// A new Pod starts while the previous Pod may still be ending. It waits for the volume without a time limit.
func TestAnotherPodWaitsForTheVolume(t *testing.T) {
	for _, d := range typed[appsv1.Deployment](t, build(t, defaults), "Deployment") {
		one := intstr.FromInt32(1)
		s := d.Spec.Strategy
		if s.Type != appsv1.RollingUpdateDeploymentStrategyType || *s.RollingUpdate.MaxSurge != one || *s.RollingUpdate.MaxUnavailable != one {
			t.Errorf("the strategy is %+v", s)
		}
		api := d.Spec.Template.Spec.Containers[0]
		if api.Name != "api" {
			t.Fatalf("the container that is started first is %s", api.Name)
		}
		const flag = "--data-dir-wait="
		at := slices.IndexFunc(api.Args, func(a string) bool { return strings.HasPrefix(a, flag) })
		if at < 0 {
			t.Fatalf("api has no %s", flag)
		}
		wait, err := time.ParseDuration(strings.TrimPrefix(api.Args[at], flag))
		if grace := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second; err != nil || wait <= grace {
			t.Errorf("another Pod waits for %s (%v), and this one may take %s to end", wait, err, grace)
		}
	}
}

// A policy that allows DNS also allows the port of DNS servers behind a Service.
func TestNamesAreAnsweredOnEitherPort(t *testing.T) {
	found := 0
	for _, name := range installations {
		for _, p := range typed[networkingv1.NetworkPolicy](t, build(t, name), "NetworkPolicy") {
			for _, rule := range p.Spec.Egress {
				ports := map[string]bool{}
				for _, port := range rule.Ports {
					ports[string(*port.Protocol)+" "+port.Port.String()] = true
				}
				if !ports["UDP 53"] {
					continue
				}
				found++
				for _, other := range []string{"TCP 53", "UDP 5353", "TCP 5353"} {
					if !ports[other] {
						t.Errorf("%s: %s lets out UDP 53, and not %s", name, p.Name, other)
					}
				}
			}
		}
	}
	if found == 0 {
		t.Error("no policy lets names be asked for")
	}
}
