//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// serviceMonitor has the fields of a ServiceMonitor that config/prometheus uses. The test fails on any other field,
// because prometheusConfig would ignore it.
type serviceMonitor struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// object has the kind of a Kubernetes object, and the groups of a PrometheusRule.
type object struct {
	Kind string `json:"kind"`
	Spec struct {
		Groups []any `json:"groups"`
	} `json:"spec"`
}

// rendered returns the objects of a kustomization. monitor and rules need the Prometheus operator, the others do not.
func (n *node) rendered(t *testing.T) (others string, monitor serviceMonitor, rules []any) {
	t.Helper()
	var rest []string
	for _, text := range strings.Split(n.kubectl(t, "kustomize", "."), "\n---\n") {
		var o object
		rig.Must(t, yaml.Unmarshal([]byte(text), &o))
		switch o.Kind {
		case "ServiceMonitor":
			rig.Must(t, yaml.UnmarshalStrict([]byte(text), &monitor))
		case "PrometheusRule":
			rules = append(rules, o.Spec.Groups...)
		default:
			rest = append(rest, text)
		}
	}
	if len(monitor.Spec.Endpoints) == 0 || len(rules) == 0 {
		t.Fatal("config/prometheus has no ServiceMonitor with endpoints, or no rules")
	}
	return strings.Join(rest, "\n---\n"), monitor, rules
}

// prometheusConfig returns the configuration that Prometheus' operator makes from a ServiceMonitor:
// a job for each endpoint, selected by the labels of the Service and the name of its port.
func prometheusConfig(m serviceMonitor) map[string]any {
	type relabel = map[string]any
	var jobs []any
	for i, e := range m.Spec.Endpoints {
		var relabels []relabel
		for label, value := range m.Spec.Selector.MatchLabels {
			name := strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(label)
			relabels = append(relabels, relabel{"action": "keep", "source_labels": []string{"__meta_kubernetes_service_label_" + name}, "regex": value})
		}
		relabels = append(relabels, relabel{"action": "keep", "source_labels": []string{"__meta_kubernetes_endpointslice_port_name"}, "regex": e.Port})
		for _, label := range []string{"namespace", "pod_name", "service_name"} {
			relabels = append(relabels, relabel{"source_labels": []string{"__meta_kubernetes_" + label}, "target_label": strings.TrimSuffix(label, "_name")})
		}
		jobs = append(jobs, map[string]any{
			"job_name": fmt.Sprintf("serviceMonitor/%s/%s/%d", m.Metadata.Namespace, m.Metadata.Name, i), "scrape_interval": e.Interval,
			"kubernetes_sd_configs": []any{map[string]any{"role": "endpointslice", "namespaces": map[string]any{"names": []string{m.Metadata.Namespace}}}},
			"relabel_configs":       relabels,
		})
	}
	return map[string]any{
		"global": map[string]any{"evaluation_interval": "30s"}, "rule_files": []string{"/etc/prometheus/rules.yaml"}, "scrape_configs": jobs,
	}
}

// inNamespaceOfPrometheus has the objects that Prometheus needs, except its configuration.
const inNamespaceOfPrometheus = `
apiVersion: v1
kind: Namespace
metadata: {name: monitoring, labels: {trust.keyserver.dev/metrics: "true"}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: monitoring}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: prometheus, namespace: keyserver-system}
rules:
  - {apiGroups: [""], resources: [services, pods], verbs: [get, list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: prometheus, namespace: keyserver-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
---
apiVersion: v1
kind: Pod
metadata: {name: prometheus, namespace: monitoring}
spec:
  serviceAccountName: prometheus
  terminationGracePeriodSeconds: 1
  containers:
    - name: prometheus
      image: registry.example/prometheus:1
      args: [--config.file=/etc/prometheus/prometheus.yaml, --storage.tsdb.path=/data]
      readinessProbe: {httpGet: {path: /-/ready, port: 9090}, periodSeconds: 1}
      volumeMounts:
        - {name: config, mountPath: /etc/prometheus, readOnly: true}
        - {name: data, mountPath: /data}
  securityContext: {fsGroup: 65532}
  volumes:
    - {name: config, configMap: {name: prometheus}}
    - {name: data, emptyDir: {sizeLimit: 256Mi}}
`

// monitored runs Prometheus against the product with the files of config/prometheus, under its
// NetworkPolicies. The volume fills up, and an alert fires and clears.
func monitored(t *testing.T, n *node) {
	file := filepath.Join(n.work, "kustomization.yaml")
	text, err := os.ReadFile(file)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(file, slices.Concat(text, []byte("components:\n  - config/prometheus\n")), 0o600))
	t.Cleanup(func() { // without these two kinds, "delete -k" would not delete it
		rig.Must(t, os.WriteFile(file, text, 0o600))
		n.kubectl(t, "-n", namespace, "delete", "-f", "config/prometheus/service.yaml", "-f", "config/prometheus/network_policy.yaml")
		n.kubectl(t, "-n", namespace, "delete", "role/prometheus", "rolebinding/prometheus")
		n.kubectl(t, "apply", "-k", ".")
		n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=5m")
	})
	others, monitor, rules := n.rendered(t)
	_, err = n.try(others, "kubectl", "apply", "-f", "-")
	rig.Must(t, err)
	n.kubectl(t, "-n", namespace, "rollout", "status", "deployment/keyserver", "--timeout=5m")
	n.enforces(t)

	n.kubectl(t, "create", "namespace", "elsewhere")
	t.Cleanup(func() { n.kubectl(t, "delete", "namespace", "elsewhere", "monitoring", "--timeout=2m") })
	n.probe(t, "elsewhere", "stranger", "app: stranger")
	n.kubectl(t, "create", "namespace", "monitoring")
	config, err := yaml.Marshal(prometheusConfig(monitor))
	rig.Must(t, err)
	groups, err := yaml.Marshal(map[string]any{"groups": rules})
	rig.Must(t, err)
	for name, text := range map[string][]byte{"prometheus.yaml": config, "rules.yaml": groups} {
		rig.Must(t, os.WriteFile(filepath.Join(n.work, name), text, 0o600))
	}
	n.kubectl(t, "-n", "monitoring", "create", "configmap", "prometheus", "--from-file=prometheus.yaml", "--from-file=rules.yaml")
	n.apply(t, "", inNamespaceOfPrometheus) // Prometheus may list Services in the namespace of the product
	n.kubectl(t, "-n", "monitoring", "wait", "--for=condition=Ready", "--timeout=2m", "pod/prometheus")
	p := &prometheus{"http://" + net.JoinHostPort(n.field(t, "monitoring", "pod/prometheus", "{.status.podIP}"), "9090")}

	for i, port := range []string{"8082", "8083"} {
		job := fmt.Sprintf("serviceMonitor/%s/keyserver/%d", namespace, i)
		rig.Succeeds(t, func() error { return p.is(fmt.Sprintf(`sum(up{job=%q, namespace=%q})`, job, namespace), "1") })
		product := n.kubectl(t, "-n", namespace, "get", "pods", "-l", "trust.keyserver.dev/manager=true", "-o", "jsonpath={.items[0].status.podIP}")
		if open, err := n.open(way{"elsewhere", "stranger", net.JoinHostPort(product, port)}); open || err != nil {
			t.Errorf("metrics at %s are open to a namespace without the label: %v", port, err)
		}
	}
	// One metric of each container shows that the product was scraped.
	for query, want := range map[string]string{
		`max(leader_election_master_status{name="manager.trust.keyserver.dev"})`: "1",
		`sum(keyserver_objects{kind="KeyServer", reason="Verified"})`:            "1",
		`min(keyserver_ready)`: "1",
	} {
		rig.Succeeds(t, func() error { return p.is(query, want) })
	}
	fills(t, n, p)
}

// fills fills the volume of the key server and empties it again.
func fills(t *testing.T, n *node, p *prometheus) {
	const alert = `count(ALERTS{alertname="KeyServerPartFails", part="volume", alertstate="firing"}) or vector(0)`
	rig.Must(t, p.is(alert, "0"))
	volume := n.field(t, namespace, "persistentvolumeclaim/keyserver-data", "{.spec.volumeName}")
	path := n.field(t, "default", "persistentvolume/"+volume, "{.spec.local.path}")
	n.mustOnNode(t, "", "fallocate -l $(($(stat -f -c '%a * %S' "+path+") * 95 / 100)) "+path+"/fill")
	began := time.Now()
	rig.Within(t, 3*rig.Patience, "the alert fires", func() bool { return p.is(alert, "1") == nil })
	fired := time.Since(began)
	n.mustOnNode(t, "", "rm "+path+"/fill")
	began = time.Now()
	rig.Within(t, 3*rig.Patience, "the alert clears", func() bool { return p.is(alert, "0") == nil })
	logMeasurement(t, "KeyServerPartFails fires %s after the volume is full, and clears %s after there is room", seconds(fired), seconds(time.Since(began)))
	n.awaitField(t, "default", "keyserver/default", ready, "True")
}

type prometheus struct{ url string }

// is returns an error unless the query has the value want.
func (p *prometheus) is(query, want string) error {
	answer, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var said struct {
		Error string
		Data  struct {
			Result []struct{ Value []any }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return err
	}
	if r := said.Data.Result; len(r) != 1 || len(r[0].Value) != 2 || r[0].Value[1] != want {
		return fmt.Errorf("%s is %v %s; want %s", query, r, said.Error, want)
	}
	return nil
}
