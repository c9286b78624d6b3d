package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// installations are the kustomizations that the documents describe.
var installations = []string{defaults, postgres, monitored, postgresMonitored, documented}

// A kube-apiserver that enforces Pod Security "restricted" in our namespace accepts all objects. It only warns about
// Deployments, so that the test creates a Pod from each template.
func TestInstallationsAreAdmitted(t *testing.T) {
	for _, name := range installations {
		t.Run(name, func(t *testing.T) {
			objects := build(t, name)
			apply(t, objects)
			enforced(t)
			deployments := typed[appsv1.Deployment](t, objects, "Deployment")
			if len(deployments) == 0 {
				t.Fatal("no Deployment")
			}
			for _, d := range deployments {
				pod := podOf(d)
				if err := kube.Create(t.Context(), pod, client.DryRunAll); err != nil {
					t.Errorf("a Pod of Deployment %s: %v", d.Name, err)
				}
				if mounted := tokenMounts(pod); len(mounted) != 1 {
					t.Errorf("a Pod of Deployment %s mounts tokens in %v, want one container", d.Name, mounted)
				}
			}
		})
	}
	// Objects that would disturb tests with running managers are only applied with dry run.
	for _, name := range []string{defaultsKeyServer, postgresKeyServer, "samples"} {
		apply(t, build(t, name), client.DryRunAll)
	}
}

// The commands of the documentation work with the kubectl of users.
func TestKubectlApplies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl := func(arguments ...string) {
		t.Helper()
		command := exec.Command(controlplane.Kubectl(t), append([]string{"--kubeconfig", file}, arguments...)...)
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	kubectl("apply", "-k", filepath.Join(configDir, volume))
	kubectl("apply", "-k", filepath.Join(configDir, defaults))
	applied := versions(t, build(t, defaults))
	kubectl("apply", "-k", filepath.Join(configDir, defaults))
	if diff := cmp.Diff(applied, versions(t, build(t, defaults))); diff != "" || len(applied) == 0 {
		t.Errorf("applying the same again changes objects (-first +second):\n%s", diff)
	}
	kubectl("apply", "-k", filepath.Join(configDir, defaultsKeyServer), "--dry-run=server")
	kubectl("apply", "--server-side", "-k", filepath.Join(configDir, "samples"), "--dry-run=server")
	kubectl("get", "--raw", "/.well-known/openid-configuration")
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keyserver"}}
	if err := kube.Delete(t.Context(), deployment); err != nil {
		t.Error(err)
	}
}

// versions returns the resource versions of the objects in the cluster. The output of kubectl is not sufficient: it
// prints "configured" also for an unchanged object.
func versions(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range objects {
		now := o.DeepCopy()
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil {
			t.Fatal(err)
		}
		found[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = now.GetResourceVersion()
	}
	return found
}

// The example kustomization of the documentation has the documented effect.
func TestDocumentedKustomization(t *testing.T) {
	objects := build(t, documented)
	for name, c := range containers(t, objects) {
		if c.Image != "registry.example/keyserver-operator:v0.1.0" {
			t.Errorf("%s runs %s", name, c.Image)
		}
		settings := pick(t, objects, "ConfigMap", c.EnvFrom[0].ConfigMapRef.Name)
		for key, want := range map[string]string{
			"KEYSERVER_OIDC_ISSUER": "https://issuer.example/cluster", "KEYSERVER_LOG_LEVEL": "debug",
			"KEYSERVER_EXTERNAL_URL": "https://keyserver.keyserver-system.svc", // from config/default
		} {
			if got, _, _ := unstructured.NestedString(settings.Object, "data", key); got != want {
				t.Errorf("%s: %s is %q", name, key, got)
			}
		}
	}
}

// Pod Security rejects each of these Pods. This shows that TestInstallationsAreAdmitted can fail.
func TestAdmissionRefuses(t *testing.T) {
	objects := build(t, defaults)
	apply(t, objects)
	enforced(t)
	deployment := typed[appsv1.Deployment](t, objects, "Deployment")[0]
	for name, change := range map[string]func(*corev1.PodSpec){
		"privileged": func(p *corev1.PodSpec) { p.Containers[1].SecurityContext.Privileged = ptr.To(true) },
		"root":       func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil },
		"a capability": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"privilege escalation": func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
		"no seccomp profile":   func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
		"a directory of a node": func(p *corev1.PodSpec) {
			p.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(deployment)
			change(&pod.Spec)
			err := kube.Create(t.Context(), pod, client.DryRunAll)
			if pod.Spec.Containers[1].SecurityContext.Privileged != nil {
				// The API server rejects this contradiction earlier than Pod Security, so the Pod is made consistent.
				pod.Spec.Containers[1].SecurityContext.AllowPrivilegeEscalation = ptr.To(true)
				err = kube.Create(t.Context(), pod, client.DryRunAll)
			}
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
				t.Errorf("got %v, want a refusal by PodSecurity", err)
			}
		})
	}
}

// enforced fails the test unless the namespace enforces the level of the manifests. Without that, every Pod would be
// admitted.
func enforced(t *testing.T) {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: namespace}, ns); err != nil {
		t.Fatal(err)
	}
	if got := ns.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Fatalf("the namespace enforces %q", got)
	}
}

func podOf(d appsv1.Deployment) *corev1.Pod {
	template := d.Spec.Template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: d.Name + "-", Namespace: d.Namespace, Labels: template.Labels},
		Spec:       template.Spec,
	}
}

// tokenMounts returns the containers of an admitted Pod that mount a token.
func tokenMounts(pod *corev1.Pod) []string {
	tokens := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			tokens[v.Name] = tokens[v.Name] || s.ServiceAccountToken != nil
		}
	}
	var names []string
	for _, c := range pod.Spec.Containers {
		for _, m := range c.VolumeMounts {
			if tokens[m.Name] {
				names = append(names, c.Name)
			}
		}
	}
	return slices.Compact(names)
}
