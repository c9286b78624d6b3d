package install

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/helm"
)

const (
	chartDir   = configDir + "/chart"
	keepPolicy = "helm.sh/resource-policy"
)

// values writes chart values to a file and returns its path.
func values(t *testing.T, text string) string {
	t.Helper()
	file, err := os.CreateTemp(scratch, "values-*.yaml") // Helm accepts no comma in the path
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// chart returns the objects that Helm renders for a cluster with the CRDs, without the Pod of "helm test".
func chart(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	return chartIn(t, namespace, text)
}

func chartIn(t *testing.T, where, text string) []*unstructured.Unstructured {
	t.Helper()
	out, errOut, err := helm.Run(t, "template", "keyserver", chartDir, "--skip-tests", "--api-versions", "trust.keyserver.dev/v1beta1/KeyServer", "--namespace", where, "--values", values(t, text))
	if err != nil {
		t.Fatalf("%v\n%s", err, errOut)
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096); ; {
		var content map[string]any
		if err := decoder.Decode(&content); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(content) == 0 {
			continue
		}
		// Conversion to JSON gives the same types as those of the objects that kustomize builds.
		text, err := (&unstructured.Unstructured{Object: content}).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// byName returns objects by their identity, and fails the test if an object occurs twice.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, o := range objects {
		name := o.GroupVersionKind().GroupVersion().String() + " " + describe(o)
		if _, twice := found[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		sortContainers(o)
		found[name] = o.Object
	}
	return found
}

// sortContainers sorts containers by name, because kustomize moves a container that a component
// changes to the front. Kubernetes does not use their order.
func sortContainers(o *unstructured.Unstructured) {
	if list, is := member(member(member(member(o.Object, "spec"), "template"), "spec"), "containers").([]any); is {
		slices.SortFunc(list, func(a, b any) int {
			return strings.Compare(member(a, "name").(string), member(b, "name").(string))
		})
	}
}

// The chart rejects unknown and contradictory values, and the error names them.
func TestChartRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ values, says string }{
		"no such value":              {"replicas: 3", "additional properties 'replicas' not allowed"},
		"no such value below":        {"image: {name: x}", "at '/image': additional properties 'name' not allowed"},
		"no such form":               {"form: mysql", "at '/form': value must be one of 'embedded', 'postgres', 'postgres-ha'"},
		"a tag that is a number":     {"image: {tag: 1.2}", "at '/image/tag': got number, want string"},
		"an image with a digest":     {`image: {repository: "x@sha256:00"}`, "at '/image/repository': 'x@sha256:00' does not match"},
		"a setting that is a number": {"settings: {KEYSERVER_MAX_LOGINS: 4}", "at '/settings/KEYSERVER_MAX_LOGINS': got number, want string"},
		"a setting of somebody else": {"settings: {LOG_LEVEL: debug}", "at '/settings': additional properties 'LOG_LEVEL' not allowed"},
		"a password in the values":   {"settings: {KEYSERVER_DATABASE_URL: 'postgres://a:b@c/d'}", "settings.KEYSERVER_DATABASE_URL: secrets are not allowed in values"},
		"a key in the values":        {"settings: {KEYSERVER_KEK: 'base64key://AAAA'}", "settings.KEYSERVER_KEK: secrets are not allowed in values"},
		"a key in a variable":        {"api: {extraEnv: [{name: KEYSERVER_KEK, value: 'base64key://AAAA'}]}", "api.extraEnv: secrets are not allowed in values"},
		"a duration of nothing":      {"backups: {every: daily}", "at '/backups/every': 'daily' does not match"},
		"a sink of no kind":          {"sinks: ['http://siem.example/']", "at '/sinks/0'"},
		"nine sinks":                 {"sinks: [" + strings.Repeat("'stdout:', ", 9) + "]", "at '/sinks': maxItems: got 9, want 8"},
		"a port of no TCP":           {"networkPolicies: {egressPorts: [70000]}", "at '/networkPolicies/egressPorts/0': maximum: got 70,000, want 65,535"},
		"root":                       {"pod: {securityContext: {runAsUser: 0}}", "at '/pod/securityContext/runAsUser': minimum: got 0, want 1"},
		"an argument of no flag":     {"api: {extraArgs: [debug]}", "at '/api/extraArgs/0': 'debug' does not match"},
		"a budget of nothing":        {"disruptionBudget: {maxUnavailable: 0}", "at '/disruptionBudget/maxUnavailable': minimum: got 0, want 1"},
		"no volume, scaled out":      {"{form: postgres, volume: {ephemeral: true}}", "volume.ephemeral: only the form embedded has a volume"},
		"a replica, scaled out":      {"{form: postgres, replication: {to: /backup}}", "replication: requires the form embedded"},
		"replicas of one Pod":        {"api: {replicas: 2}", "api.replicas: the form embedded has exactly one Pod"},
		"managers of one Pod":        {"manager: {replicas: 2}", "manager.replicas: the form embedded has exactly one Pod"},
		"two who say how many":       {"{form: postgres, api: {replicas: 3}}", "api.replicas: the autoscaler sets the number of replicas"},
		"more at least than at most": {"{form: postgres, autoscaling: {minReplicas: 11}}", "autoscaling.minReplicas: 11 exceeds autoscaling.maxReplicas"},
		"an account that is not":     {"api: {serviceAccountAnnotations: {a: b}}", "set manager.serviceAccountAnnotations"},
		"a CA of no database":        {"secrets: {databaseCA: {name: ca}}", "secrets.databaseCA.name: only the form postgres"},
		"backups to nowhere":         {"backups: {every: 24h, recipient: age1x}", "backups.to: is missing"},
		"backups for nobody":         {"backups: {every: 24h, to: /backup}", "backups.recipient: is missing"},
		"backups never":              {"backups: {keep: 0}", "backups.every: is missing"},
		"a replica for nobody":       {"replication: {to: /backup}", "replication.recipient: is missing"},
		"retention without archive":  {"archive: {retention: 720h}", "archive.url: is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := helm.Run(t, "template", "keyserver", chartDir, "--namespace", namespace, "--values", values(t, tc.values))
			if err == nil || out != "" || !strings.Contains(errOut, tc.says) {
				t.Errorf("got %v, want %q\n%s", err, tc.says, errOut)
			}
			if strings.Contains(errOut, "postgres://") || strings.Contains(errOut, "base64key://") {
				t.Errorf("it repeats the secret: %s", errOut)
			}
		})
	}
	for _, shared := range []string{"default", "kube-system"} {
		_, errOut, err := helm.Run(t, "template", "keyserver", chartDir, "--namespace", shared)
		if err == nil || !strings.Contains(errOut, "namespace: the network policies would block all traffic in "+shared) {
			t.Errorf("%s: got %v\n%s", shared, err, errOut)
		}
	}
}

// The chart renders the objects that kustomize builds from config. The only annotations of Helm are
// those that keep it from deleting objects with keys or finalizers, and those of the KeyServer.
func TestChartIsTheManifests(t *testing.T) {
	const alone = "{crds: {keep: false}, volume: {create: false}, keyServer: {create: false}"
	for name, tc := range map[string]struct {
		values         string
		kustomizations []string
		kept           []string // kinds with that annotation
	}{
		"default":                {"", []string{defaults, volume, defaultsKeyServer}, []string{"CustomResourceDefinition", "PersistentVolumeClaim", "KeyServer"}},
		"definitions to be lost": {"crds: {keep: false}", []string{defaults, volume, defaultsKeyServer}, []string{"PersistentVolumeClaim", "KeyServer"}},
		"alone":                  {alone + "}", []string{defaults}, nil},
		"with access":            {alone + ", access: {secrets: [default], publish: [default]}}", []string{defaults, access}, nil},
		"monitored":              {alone + ", monitoring: {create: true}}", []string{monitored}, nil},
		"postgres":               {"{crds: {keep: false}, form: postgres}", []string{postgres, postgresKeyServer}, []string{"KeyServer"}},
		"postgres, monitored":    {alone + ", form: postgres, monitoring: {create: true}}", []string{postgresMonitored}, nil},
		"postgres-ha":            {alone + ", form: postgres-ha}", []string{postgresHA}, nil},
		"the example of docs/install.md": {
			"crds: {keep: false}\n" + underHelm(t, "yaml")[0], []string{documented, volume, defaultsKeyServer}, []string{"PersistentVolumeClaim", "KeyServer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := chart(t, tc.values)
			creates := slices.Contains(tc.kept, "KeyServer")
			var want []*unstructured.Unstructured
			for _, k := range tc.kustomizations {
				for _, o := range build(t, k) {
					if o.GetKind() != "Namespace" && (creates || !ofFirstKeyServer(o)) { // the namespace must exist already
						want = append(want, o)
					}
				}
			}
			for _, o := range got {
				annotations := o.GetAnnotations()
				policy, has := annotations[keepPolicy]
				if keeps := slices.Contains(tc.kept, o.GetKind()); has != keeps || has && policy != "keep" {
					t.Errorf("%s has %s: %q", describe(o), keepPolicy, policy)
				}
				if delete(annotations, keepPolicy); o.GetKind() == "KeyServer" {
					taken(t, o, annotations)
					annotations = nil
				}
				if len(annotations) == 0 {
					annotations = nil
				}
				o.SetAnnotations(annotations)
			}
			for _, o := range slices.Concat(want, got) {
				withoutCreation(t, o, creates)
			}
			if diff := cmp.Diff(byName(t, want), byName(t, got)); diff != "" {
				t.Errorf("(-kustomize +chart):\n%s", diff)
			}
		})
	}
}

// ofFirstKeyServer returns whether the object serves only the creation of the KeyServer by the manager.
func ofFirstKeyServer(o *unstructured.Unstructured) bool {
	return o.GetName() == "keyserver-first" || o.GetName() == "keyserver-manager-first-keyserver"
}

// taken fails the test unless Helm takes the KeyServer into the release, and removes the marks for that.
func taken(t *testing.T, o *unstructured.Unstructured, annotations map[string]string) {
	t.Helper()
	marks := map[string]string{"meta.helm.sh/release-name": "keyserver", "meta.helm.sh/release-namespace": namespace}
	if diff := cmp.Diff(marks, annotations); diff != "" || o.GetLabels()["app.kubernetes.io/managed-by"] != "Helm" {
		t.Errorf("%s: %v (-want +got):\n%s", describe(o), o.GetLabels(), diff)
	}
	o.SetLabels(nil)
}

// withoutCreation removes the manifest of the first KeyServer, which TestChartCreatesTheKeyServer compares, and if the
// chart does not create it, the setting for it. The name of the settings contains a hash of their content.
func withoutCreation(t *testing.T, o *unstructured.Unstructured, creates bool) {
	t.Helper()
	if o.GetName() == "keyserver-first" {
		unstructured.RemoveNestedField(o.Object, "data")
	}
	if creates {
		return
	}
	if o.GetKind() == "ConfigMap" && strings.HasPrefix(o.GetName(), "keyserver-settings-") {
		unstructured.RemoveNestedField(o.Object, "data", "KEYSERVER_FIRST_KEYSERVER_CONFIGMAP")
		o.SetName("keyserver-settings-")
	}
	containers, _ := member(member(member(member(o.Object, "spec"), "template"), "spec"), "containers").([]any)
	for _, c := range containers {
		if from, is := member(member(member(c, "envFrom"), "0"), "configMapRef").(map[string]any); is {
			from["name"] = "keyserver-settings-"
		}
	}
}

// At the first installation, the manager creates the KeyServer that the chart would render, as the field manager of
// Helm. Without keyServer.create, no container has the setting for it.
func TestChartCreatesTheKeyServer(t *testing.T) {
	for name, text := range map[string]string{
		"embedded": "settings: {KEYSERVER_OIDC_AUDIENCE: a}",
		"postgres": "{form: postgres, secrets: {tls: {name: ours}}, keyServer: {spec: {grants: []}}}",
	} {
		t.Run(name, func(t *testing.T) {
			objects := chart(t, text)
			source := pick(t, objects, "ConfigMap", "keyserver-first")
			manifest, _, _ := unstructured.NestedString(source.Object, "data", "keyserver.yaml")
			var first map[string]any
			rig.Must(t, yaml.Unmarshal([]byte(manifest), &first))
			if diff := cmp.Diff(pick(t, objects, "KeyServer", "default").Object, first); diff != "" {
				t.Errorf("(-rendered +created):\n%s", diff)
			}
			if as, _, _ := unstructured.NestedString(source.Object, "data", "fieldManager"); as != "helm" {
				t.Errorf("the field manager is %q", as)
			}
		})
	}
	without := chart(t, "keyServer: {create: false}")
	for container, c := range containers(t, without) {
		settings := pick(t, without, "ConfigMap", c.EnvFrom[0].ConfigMapRef.Name)
		if from, _, _ := unstructured.NestedString(settings.Object, "data", "KEYSERVER_FIRST_KEYSERVER_CONFIGMAP"); from != "" {
			t.Errorf("%s has the setting %q", container, from)
		}
	}
}

// underHelm returns the blocks of a language in the Helm chapter of docs/install.md.
func underHelm(t *testing.T, language string) []string {
	t.Helper()
	return blocksUnder(t, "## Install with Helm", language)
}

// blocksUnder returns the blocks of a language under a heading of docs/install.md, up to the next
// heading of its level.
func blocksUnder(t *testing.T, heading, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, _ := strings.Cut(string(page), "\n"+heading+"\n")
	marks, _, _ := strings.Cut(heading, " ")
	for level := marks; level != "#"; level = strings.TrimPrefix(level, "#") {
		chapter, _, _ = strings.Cut(chapter, "\n"+level+" ")
	}
	var blocks []string
	for _, block := range strings.Split(chapter, "```"+language+"\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		blocks = append(blocks, text)
	}
	if len(blocks) == 0 {
		t.Fatalf("docs/install.md shows no %s under %q", language, heading)
	}
	return blocks
}

// The Pod of "helm test" connects through the Service, mounts only the CA of its certificate, and is not selected by
// the Service.
func TestChartTestsItself(t *testing.T) {
	for name, tc := range map[string]struct{ values, volume string }{
		"embedded":   {"{}", `{"name":"ca","configMap":{"name":"keyserver-ca","items":[{"key":"ca.crt","path":"ca.crt"}]}}`},
		"scaled out": {"{form: postgres, secrets: {tls: {name: ours}}}", `{"name":"ca","secret":{"secretName":"ours","items":[{"key":"ca.crt","path":"ca.crt"}],"defaultMode":288}}`},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := helm.Run(t, "template", "keyserver", chartDir, "--namespace", "trust", "--show-only", "templates/test.yaml", "--values", values(t, tc.values))
			if err != nil {
				t.Fatalf("%v\n%s", err, errOut)
			}
			var pod corev1.Pod
			rig.Must(t, yaml.Unmarshal([]byte(out), &pod))
			volumes, err := json.Marshal(pod.Spec.Volumes)
			rig.Must(t, err)
			if want := "[" + tc.volume + "]"; string(volumes) != want {
				t.Errorf("it mounts %s, want %s", volumes, want)
			}
			if want := "--server=https://keyserver.trust.svc"; !slices.Contains(pod.Spec.Containers[0].Args, want) {
				t.Errorf("it has the arguments %q, and not %s", pod.Spec.Containers[0].Args, want)
			}
			if pod.Labels["trust.keyserver.dev/api"] != "" || pod.Labels["app.kubernetes.io/name"] != "keyserver" {
				t.Errorf("by its labels it is a replica, or is let out nowhere: %v", pod.Labels)
			}
			if pod.Annotations["helm.sh/hook"] != "test" || pod.Namespace != "trust" {
				t.Errorf("it is no test of the release: %v in %s", pod.Annotations, pod.Namespace)
			}
		})
	}
}

// In a release in another namespace, all objects refer to this namespace.
func TestChartInAnotherNamespace(t *testing.T) {
	for _, o := range chartIn(t, "trust", "{keyServer: {create: true}, volume: {create: true}, monitoring: {create: true}, access: {trustBundles: true}}") {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), namespace) {
			t.Errorf("%s speaks of %s", describe(o), namespace)
		}
		if o.GetNamespace() != "" && o.GetNamespace() != "trust" {
			t.Errorf("%s is elsewhere", describe(o))
		}
	}
}

// change is the effect of one value on an object.
type change struct {
	values, kind, name string
	path               []string // fields, or names of list elements
	want               any      // nil: the field is absent
}

// The effects of values that no kustomization has.
func TestChartValues(t *testing.T) {
	pod := []string{"spec", "template", "spec"}
	api := append(slices.Clone(pod), "containers", "api")
	manager := append(slices.Clone(pod), "containers", "manager")
	under := func(at []string, more ...string) []string { return append(slices.Clone(at), more...) }
	const scaledOut = "form: postgres\n"
	for name, tc := range map[string]change{
		"pull policy":            {"image: {pullPolicy: Always}", "Deployment", "keyserver", under(api, "imagePullPolicy"), "Always"},
		"pull secrets":           {"image: {pullSecrets: [{name: r}]}", "Deployment", "keyserver", under(pod, "imagePullSecrets"), []any{map[string]any{"name": "r"}}},
		"digest":                 {"image: {tag: 'v9@sha256:" + strings.Repeat("0", 64) + "'}", "Deployment", "keyserver", under(api, "image"), "keyserver-operator:v9@sha256:" + strings.Repeat("0", 64)},
		"audience of the token":  {"settings: {KEYSERVER_OIDC_AUDIENCE: a}", "Deployment", "keyserver", under(pod, "volumes", "key-server-token", "projected", "sources", "0", "serviceAccountToken", "audience"), "a"},
		"audience of the flag":   {"settings: {KEYSERVER_OIDC_AUDIENCE: a}", "Deployment", "keyserver", under(manager, "args", "4"), "--token-file=a=/run/keyserver/token/token"},
		"audience of KeyServer":  {"{keyServer: {create: true}, settings: {KEYSERVER_OIDC_AUDIENCE: a}}", "KeyServer", "default", []string{"spec", "credentials", "administrator", "serviceAccount", "audience"}, "a"},
		"URL of KeyServer":       {"{keyServer: {create: true}, settings: {KEYSERVER_EXTERNAL_URL: 'https://a'}}", "KeyServer", "default", []string{"spec", "externalURL"}, "https://a"},
		"grants of KeyServer":    {"keyServer: {create: true, spec: {grants: []}}", "KeyServer", "default", []string{"spec", "grants"}, []any{}},
		"definitions by others":  {"crds: {create: false}", "CustomResourceDefinition", "keys.trust.keyserver.dev", nil, nil},
		"another claim":          {"volume: {claimName: mine}", "Deployment", "keyserver", under(pod, "volumes", "data", "persistentVolumeClaim", "claimName"), "mine"},
		"a claim made":           {"volume: {create: true, claimName: mine, size: 2Gi}", "PersistentVolumeClaim", "mine", []string{"spec", "resources", "requests", "storage"}, "2Gi"},
		"a storage class":        {"volume: {create: true, storageClassName: fast}", "PersistentVolumeClaim", "keyserver-data", []string{"spec", "storageClassName"}, "fast"},
		"no volume":              {"volume: {ephemeral: true}", "Deployment", "keyserver", under(pod, "volumes", "data"), map[string]any{"name": "data", "emptyDir": map[string]any{}}},
		"the database's Secret":  {scaledOut + "secrets: {database: {name: db, key: uri}}", "Deployment", "keyserver-api", under(api, "env", "KEYSERVER_DATABASE_URL", "valueFrom", "secretKeyRef"), map[string]any{"name": "db", "key": "uri"}},
		"the database's CA":      {scaledOut + "secrets: {databaseCA: {name: ca, key: root.crt}}", "Deployment", "keyserver-api", under(pod, "volumes", "database-ca", "secret", "items", "0"), map[string]any{"key": "root.crt", "path": "ca.crt"}},
		"the CA's mount":         {scaledOut + "secrets: {databaseCA: {name: ca}}", "Deployment", "keyserver-api", under(api, "volumeMounts", "database-ca", "mountPath"), "/run/keyserver/database"},
		"no CA for managers":     {scaledOut + "secrets: {databaseCA: {name: ca}}", "Deployment", "keyserver", under(pod, "volumes", "database-ca"), nil},
		"the key's Secret":       {scaledOut + "secrets: {kek: {name: k, key: u}}", "Deployment", "keyserver-api", under(api, "env", "KEYSERVER_KEK", "valueFrom", "secretKeyRef"), map[string]any{"name": "k", "key": "u"}},
		"the previous key":       {scaledOut + "secrets: {kek: {name: k, previousKey: p}}", "Deployment", "keyserver-api", under(api, "env", "KEYSERVER_KEK_PREVIOUS", "valueFrom", "secretKeyRef", "key"), "p"},
		"the certificate":        {scaledOut + "secrets: {tls: {name: t}}", "Deployment", "keyserver-api", under(pod, "volumes", "tls", "secret", "secretName"), "t"},
		"who reads its CA":       {scaledOut + "secrets: {tls: {name: t}}", "Role", "keyserver-manager-ca", []string{"rules", "0", "resourceNames"}, []any{"t"}},
		"whose CA KeyServer has": {scaledOut + "keyServer: {create: true}\nsecrets: {tls: {name: t}}", "KeyServer", "default", []string{"spec", "caBundle", "secretKeyRef", "name"}, "t"},
		"managers":               {scaledOut + "manager: {replicas: 3}", "Deployment", "keyserver", []string{"spec", "replicas"}, int64(3)},
		"replicas":               {scaledOut + "autoscaling: {create: false}\napi: {replicas: 5}", "Deployment", "keyserver-api", []string{"spec", "replicas"}, int64(5)},
		"replicas, unsaid":       {scaledOut + "autoscaling: {create: false}", "Deployment", "keyserver-api", []string{"spec", "replicas"}, int64(2)},
		"no autoscaler":          {scaledOut + "autoscaling: {create: false}", "HorizontalPodAutoscaler", "keyserver-api", nil, nil},
		"autoscaler, least":      {scaledOut + "autoscaling: {minReplicas: 3}", "HorizontalPodAutoscaler", "keyserver-api", []string{"spec", "minReplicas"}, int64(3)},
		"autoscaler, most":       {scaledOut + "autoscaling: {maxReplicas: 4}", "HorizontalPodAutoscaler", "keyserver-api", []string{"spec", "maxReplicas"}, int64(4)},
		"autoscaler, aim":        {scaledOut + "autoscaling: {targetCPUUtilization: 50}", "HorizontalPodAutoscaler", "keyserver-api", []string{"spec", "metrics", "0", "resource", "target", "averageUtilization"}, int64(50)},
		"no budget":              {"disruptionBudget: {create: false}", "PodDisruptionBudget", "keyserver", nil, nil},
		"budget":                 {"disruptionBudget: {maxUnavailable: 2}", "PodDisruptionBudget", "keyserver", []string{"spec", "maxUnavailable"}, int64(2)},
		"no policies":            {"networkPolicies: {create: false}", "NetworkPolicy", "keyserver-deny", nil, nil},
		"no policy of metrics":   {"{networkPolicies: {create: false}, monitoring: {create: true}}", "NetworkPolicy", "keyserver-metrics", nil, nil},
		"a port let out":         {"networkPolicies: {egressPorts: [636]}", "NetworkPolicy", "keyserver-egress", []string{"spec", "egress", "0", "ports", "8"}, map[string]any{"protocol": "TCP", "port": int64(636)}},
		"no alerts":              {"monitoring: {create: true, alerts: false}", "PrometheusRule", "keyserver", nil, nil},
		"interval":               {"monitoring: {create: true, interval: 5s}", "ServiceMonitor", "keyserver", []string{"spec", "endpoints", "1", "interval"}, "5s"},
		"labels for Prometheus":  {"monitoring: {create: true, labels: {release: p}}", "PrometheusRule", "keyserver", []string{"metadata", "labels", "release"}, "p"},
		"trust bundles":          {"access: {trustBundles: true}", "ClusterRoleBinding", "keyserver-manager-trust-bundles", []string{"subjects", "0", "name"}, "keyserver-manager"},
		"access elsewhere":       {"access: {secrets: [a, b]}", "RoleBinding", "keyserver-manager-secrets", []string{"metadata", "namespace"}, "a"},
		"account of the manager": {"manager: {serviceAccountAnnotations: {a: b}}", "ServiceAccount", "keyserver-manager", []string{"metadata", "annotations"}, map[string]any{"a": "b"}},
		"account of the server":  {scaledOut + "api: {serviceAccountAnnotations: {a: b}}", "ServiceAccount", "keyserver-api", []string{"metadata", "annotations"}, map[string]any{"a": "b"}},
		"not of the manager":     {scaledOut + "api: {serviceAccountAnnotations: {a: b}}", "ServiceAccount", "keyserver-manager", []string{"metadata", "annotations"}, nil},
		"resources":              {"api: {resources: {limits: {memory: 2Gi}}}", "Deployment", "keyserver", under(api, "resources"), map[string]any{"limits": map[string]any{"memory": "2Gi"}}},
		"resources, only there":  {"api: {resources: {limits: {memory: 2Gi}}}", "Deployment", "keyserver", under(manager, "resources", "limits", "memory"), "512Mi"},
		"an argument":            {"api: {extraArgs: [--break-glass]}", "Deployment", "keyserver", under(api, "args", "6"), "--break-glass"},
		"a variable":             {"manager: {extraEnv: [{name: HTTPS_PROXY, value: p}]}", "Deployment", "keyserver", under(manager, "env", "HTTPS_PROXY", "value"), "p"},
		"a variable in place":    {"api: {extraEnv: [{name: KEYSERVER_CA_FILE, value: /x}]}", "Deployment", "keyserver", under(api, "env", "1"), map[string]any{"name": "KEYSERVER_CA_FILE", "value": "/x"}},
		"a mount":                {"api: {extraVolumeMounts: [{name: x, mountPath: /x}]}", "Deployment", "keyserver", under(api, "volumeMounts", "x", "mountPath"), "/x"},
		"a volume":               {"pod: {extraVolumes: [{name: x, emptyDir: {}}]}", "Deployment", "keyserver", under(pod, "volumes", "x", "emptyDir"), map[string]any{}},
		"a user of the cluster":  {"pod: {securityContext: {runAsUser: null}}", "Deployment", "keyserver", under(pod, "securityContext", "runAsUser"), nil},
		"users of the cluster": {"pod: {securityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}}", "Deployment", "keyserver", under(pod, "securityContext"),
			map[string]any{"runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}},
		"another user":           {scaledOut + "pod: {securityContext: {runAsUser: 1000700000, runAsGroup: 0}}", "Deployment", "keyserver-api", under(pod, "securityContext", "runAsUser"), int64(1000700000)},
		"group 0":                {"pod: {securityContext: {runAsGroup: 0}}", "Deployment", "keyserver", under(pod, "securityContext", "runAsGroup"), int64(0)},
		"of before":              {"pod: {securityContext: null}", "Deployment", "keyserver", under(pod, "securityContext", "runAsUser"), int64(65532)},
		"nodes":                  {"pod: {nodeSelector: {disk: ssd}}", "Deployment", "keyserver", under(pod, "nodeSelector"), map[string]any{"disk": "ssd"}},
		"tolerations":            {"pod: {tolerations: [{operator: Exists}]}", "Deployment", "keyserver", under(pod, "tolerations", "0", "operator"), "Exists"},
		"affinity":               {"pod: {affinity: {nodeAffinity: {}}}", "Deployment", "keyserver", under(pod, "affinity"), map[string]any{"nodeAffinity": map[string]any{}}},
		"topology":               {scaledOut + "pod: {topologySpreadConstraints: [{topologyKey: zone}]}", "Deployment", "keyserver-api", under(pod, "topologySpreadConstraints"), []any{map[string]any{"topologyKey": "zone"}}},
		"priority":               {"pod: {priorityClassName: high}", "Deployment", "keyserver", under(pod, "priorityClassName"), "high"},
		"annotations":            {"pod: {annotations: {a: b}}", "Deployment", "keyserver", []string{"spec", "template", "metadata", "annotations", "a"}, "b"},
		"labels are added":       {"pod: {labels: {a: b, app.kubernetes.io/name: x}}", "Deployment", "keyserver", []string{"spec", "template", "metadata", "labels"}, map[string]any{"a": "b", "app.kubernetes.io/name": "keyserver", "trust.keyserver.dev/manager": "true", "trust.keyserver.dev/api": "true"}},
		"backups":                {"backups: {every: 24h, to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_BACKUP_EVERY", "value"), "24h"},
		"backups, where":         {"backups: {every: 24h, to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_BACKUP_TO", "value"), "s3://b"},
		"backups, for whom":      {"backups: {every: 24h, to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_BACKUP_RECIPIENT", "value"), "age1x"},
		"all backups":            {"backups: {every: 24h, to: 's3://b', recipient: age1x, keep: 0}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_BACKUP_KEEP", "value"), "0"},
		"backups, unsaid":        {"backups: {every: 24h, to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_BACKUP_KEEP"), nil},
		"no backups of managers": {"backups: {every: 24h, to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(manager, "env", "KEYSERVER_BACKUP_EVERY"), nil},
		"a replica":              {"replication: {to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_REPLICATE_TO", "value"), "s3://b"},
		"a replica, for whom":    {"replication: {to: 's3://b', recipient: age1x}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_REPLICATE_RECIPIENT", "value"), "age1x"},
		"a replica, how long":    {"replication: {to: 's3://b', recipient: age1x, keep: 48h}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_REPLICATE_KEEP", "value"), "48h"},
		"an archive":             {"archive: {url: 's3://b'}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_AUDIT_ARCHIVE", "value"), "s3://b"},
		"retention":              {"archive: {url: 's3://b', retention: 720h}", "Deployment", "keyserver", under(api, "env", "KEYSERVER_AUDIT_RETENTION", "value"), "720h"},
		"sinks":                  {"sinks: ['stdout:', 'https://siem.example/in']", "Deployment", "keyserver", under(api, "env", "KEYSERVER_AUDIT_SINK", "value"), "stdout:,https://siem.example/in"},
	} {
		t.Run(name, func(t *testing.T) {
			var found any
			for _, o := range chart(t, tc.values) {
				if found == nil && o.GetKind() == tc.kind && o.GetName() == tc.name {
					found = o.Object
				}
			}
			if tc.path != nil && found == nil {
				t.Fatalf("there is no %s %s", tc.kind, tc.name)
			}
			for _, step := range tc.path {
				found = member(found, step)
			}
			if diff := cmp.Diff(tc.want, found); diff != "" {
				t.Errorf("%s (-want +got):\n%s", strings.Join(tc.path, "."), diff)
			}
		})
	}
}

// member returns a field, or the list element with this name or index.
func member(of any, step string) any {
	switch of := of.(type) {
	case map[string]any:
		return of[step]
	case []any:
		for place, item := range of {
			if fields, is := item.(map[string]any); is && fields["name"] == step || step == string(rune('0'+place)) {
				return item
			}
		}
	}
	return nil
}

// A changed setting creates new Pods, because the name of their ConfigMap changes.
func TestChartSettingsRestart(t *testing.T) {
	names := map[string]string{}
	for _, text := range []string{"", "settings: {KEYSERVER_LOG_LEVEL: debug}"} {
		objects := chart(t, text)
		for container, c := range containers(t, objects) {
			name := c.EnvFrom[0].ConfigMapRef.Name
			pick(t, objects, "ConfigMap", name)
			if other, twice := names[container]; twice && other == name {
				t.Errorf("%s keeps %s", container, name)
			}
			names[container] = name
		}
	}
}

// Helm reports no problem, and the chart has the version of the program.
func TestChartLint(t *testing.T) {
	out, errOut, err := helm.Run(t, "lint", "--strict", chartDir)
	if err != nil || !strings.Contains(out, "0 chart(s) failed") {
		t.Errorf("%v\n%s%s", err, out, errOut)
	}
}

// Rendered objects that differ from the kustomizations also conform to the schemas of the kube-apiserver.
func TestChartConforms(t *testing.T) {
	apply(t, build(t, "crd"))
	conform := newConformer(t)
	for _, form := range slices.Sorted(maps.Keys(chartForms)) {
		for _, o := range chart(t, "form: "+form+"\n"+chartForms[form]) {
			if group := o.GroupVersionKind().Group; group == monitoringAPIGroup || group == databaseAPIGroup {
				continue // not in a plain cluster
			}
			if err := conform(o); err != nil {
				t.Errorf("%s: %s: %v", form, describe(o), err)
			}
		}
	}
}

// chartForms has, for each form, values that enable as many options as possible.
var chartForms = map[string]string{
	"embedded": everywhere + `
volume: {create: true, storageClassName: fast}
replication: {to: "s3://replica", recipient: age1x, keep: 48h}
`,
	"postgres": everywhere + `
secrets: {databaseCA: {name: ca}}
autoscaling: {create: false}
manager: {replicas: 3, serviceAccountAnnotations: {a: b}}
`,
	"postgres-ha": everywhere + `
autoscaling: {minReplicas: 3, maxReplicas: 5}
`,
}

const everywhere = `
image: {repository: registry.example/k, tag: v1, pullPolicy: Always, pullSecrets: [{name: registry}]}
settings: {KEYSERVER_LOG_LEVEL: debug}
pod:
  annotations: {a: b}
  labels: {a: b}
  nodeSelector: {disk: ssd}
  tolerations: [{key: keys, operator: Exists, effect: NoSchedule}]
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
  extraVolumes: [{name: plugin, emptyDir: {}}]
api:
  resources: {requests: {cpu: "1"}}
  extraArgs: [--log-level=debug]
  extraEnv: [{name: HTTPS_PROXY, value: "http://proxy.example:3128"}]
  extraVolumeMounts: [{name: plugin, mountPath: /run/plugin}]
networkPolicies: {egressPorts: [3128]}
monitoring: {create: true, labels: {release: prometheus}}
access: {secrets: [default], publish: [default], trustBundles: true}
keyServer: {create: true, spec: {externalURL: "https://keyserver.example"}}
backups: {every: 24h, to: "s3://backups", recipient: age1x, keep: 3}
archive: {url: "s3://archive", retention: 720h}
sinks: ["stdout:"]
`
