package install

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// The mounts of a container limit its rights. The manager can never read the database or a key-encryption key. If both
// share a Pod, the key server can never read the token.
func TestRightsFollowFromMounts(t *testing.T) {
	for name, want := range map[string]map[string][]string{ // mounts by container
		defaults: {
			"manager": {"issuer-keys", "key-server-token read-only", "kubernetes-token", "server-ca read-only"},
			"api":     {"data", "issuer-keys read-only", "server-ca", "tmp"},
		},
		postgres: {
			"manager": {"key-server-token read-only", "kubernetes-token"},
			"api":     {"data", "kubernetes-token", "tls read-only", "tmp"},
		},
		postgresHA: {
			"manager": {"key-server-token read-only", "kubernetes-token"},
			"api":     {"data", "database-ca read-only", "kubernetes-token", "tls read-only", "tmp"},
		},
	} {
		for container, c := range containers(t, build(t, name)) {
			var got []string
			for _, m := range c.VolumeMounts {
				if m.Name != "kubernetes-token" && m.ReadOnly { // projected volumes are read-only anyway
					m.Name += " read-only"
				}
				got = append(got, m.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, want[container]) {
				t.Errorf("%s: %s mounts %q, want %q", name, container, got, want[container])
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && container != "api" {
					t.Errorf("%s: %s takes %s from a Secret", name, container, e.Name)
				}
			}
		}
	}
}

// The flags and ports in the manifests exist: every argument and every environment variable is a flag of its command,
// and every probe and every port of a Service names a port of a container.
func TestContainersAreToldWhatTheyKnow(t *testing.T) {
	p := program.Program{Path: imageBuilt(t).program()}
	flags := map[string]map[string]bool{}
	for _, command := range []string{"manager", "serve"} {
		help, err := p.Run(command, "--help")
		if err != nil {
			t.Fatal(err)
		}
		flags[command] = map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(help, -1) {
			flags[command][m[1]] = true
		}
	}
	for _, name := range installations {
		objects := build(t, name)
		known := map[string]bool{} // settings of all containers
		for container, c := range containers(t, objects) {
			command := c.Args[0]
			for _, a := range c.Args[1:] {
				flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
				if !flags[command][flag] {
					t.Errorf("%s: %s has no flag %q", name, command, a)
				}
			}
			for _, e := range c.Env {
				if !flags[command][flagOf(e.Name)] {
					t.Errorf("%s: container %s: no flag of %s goes by %s", name, container, command, e.Name)
				}
			}
			maps.Copy(known, flags[command])
		}
		for _, m := range typed[corev1.ConfigMap](t, objects, "ConfigMap") {
			for key := range m.Data {
				if strings.HasPrefix(m.Name, "keyserver-settings-") && !known[flagOf(key)] {
					t.Errorf("%s: no flag goes by %s", name, key)
				}
			}
		}
		checkPorts(t, name, objects)
	}
}

func flagOf(variable string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(variable, "KEYSERVER_")), "_", "-")
}

func checkPorts(t *testing.T, name string, objects []*unstructured.Unstructured) {
	t.Helper()
	all := map[string]bool{}
	for container, c := range containers(t, objects) {
		own := map[string]bool{}
		for _, p := range c.Ports {
			own[p.Name], all[p.Name] = true, true
		}
		if c.LivenessProbe == nil || c.ReadinessProbe == nil {
			t.Errorf("%s: %s has no probes", name, container)
			continue
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if probe != nil && !own[probe.HTTPGet.Port.StrVal] {
				t.Errorf("%s: a probe of %s asks port %q", name, container, probe.HTTPGet.Port.StrVal)
			}
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: %s requests no resources", name, container)
		}
	}
	for _, s := range typed[corev1.Service](t, objects, "Service") {
		for _, p := range s.Spec.Ports {
			if !all[p.TargetPort.StrVal] {
				t.Errorf("%s: Service %s leads to port %q", name, s.Name, p.TargetPort.StrVal)
			}
		}
	}
}

// Every selector selects a Pod. If a label changed on one side, a Service would have no endpoints or a policy no
// effect.
func TestSelectorsMatch(t *testing.T) {
	for _, name := range installations {
		objects := build(t, name)
		deployments := typed[appsv1.Deployment](t, objects, "Deployment")
		selects := func(what string, selector map[string]string) {
			t.Helper()
			if !slices.ContainsFunc(deployments, func(d appsv1.Deployment) bool { return matches(selector, d.Spec.Template.Labels) }) {
				t.Errorf("%s: %s selects no Pod: %v", name, what, selector)
			}
		}
		for _, s := range typed[corev1.Service](t, objects, "Service") {
			selects("Service "+s.Name, s.Spec.Selector)
		}
		for _, b := range typed[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget") {
			selects("PodDisruptionBudget "+b.Name, b.Spec.Selector.MatchLabels)
		}
		for _, p := range typed[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy") {
			selects("NetworkPolicy "+p.Name, p.Spec.PodSelector.MatchLabels)
		}
		for _, d := range deployments {
			owners := 0
			for _, other := range deployments {
				if matches(other.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
					owners++
				}
			}
			if owners != 1 {
				t.Errorf("%s: %d Deployments select the Pods of %s", name, owners, d.Name)
			}
		}
		for _, h := range typed[autoscalingv2.HorizontalPodAutoscaler](t, objects, "HorizontalPodAutoscaler") {
			scaled := pick(t, objects, h.Spec.ScaleTargetRef.Kind, h.Spec.ScaleTargetRef.Name)
			if _, fixed, _ := unstructured.NestedInt64(scaled.Object, "spec", "replicas"); fixed {
				t.Errorf("%s: applying %s again would undo the autoscaler", name, describe(scaled))
			}
		}
		for _, b := range typed[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding") {
			for _, s := range b.Subjects {
				pick(t, objects, s.Kind, s.Name)
			}
		}
	}
}

// The codes and reasons in the alert rules exist in our catalogues.
func TestRulesKnowTheCatalogues(t *testing.T) {
	known := map[string]bool{"OK": true}
	for _, e := range fault.Catalogue {
		known[string(e.Code)] = true
	}
	for _, e := range v1beta1.Reasons {
		known[string(e.Reason)] = true
	}
	text, err := os.ReadFile(filepath.Join(configDir, "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules any
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\b(?:code|reason)(?:=~|!~|!=|=)"([^"]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(found) < 4 {
		t.Fatalf("found only %d", len(found))
	}
	for _, m := range found {
		for word := range strings.SplitSeq(m[1], "|") {
			if !known[word] {
				t.Errorf("the rules name %q, which is neither a code nor a reason", word)
			}
		}
	}
}

// containers returns the containers of all Deployments, by name.
func containers(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.Container {
	t.Helper()
	found := map[string]corev1.Container{}
	for _, d := range typed[appsv1.Deployment](t, objects, "Deployment") {
		for _, c := range d.Spec.Template.Spec.Containers {
			found[c.Name] = c
		}
	}
	return found
}
