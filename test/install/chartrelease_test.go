package install

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/internal/operator/firstkeyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/helm"
)

// release is the chart in a separate cluster, without other objects of ours.
type release struct {
	t          *testing.T
	kubeconfig string
	kube       client.Client
}

func newRelease(t *testing.T) *release {
	t.Helper()
	cluster, err := controlplane.Begin()
	rig.Must(t, err)
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := &release{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	rig.Must(t, os.WriteFile(r.kubeconfig, cluster.KubeConfig, 0o600))
	r.kube, err = client.New(cluster.Config, client.Options{Scheme: controlplane.Scheme(apiextensionsv1.AddToScheme)})
	rig.Must(t, err)
	return r
}

func (r *release) helm(arguments ...string) error {
	_, errOut, err := helm.Run(r.t, append(arguments, "--kubeconfig", r.kubeconfig, "--namespace", namespace)...)
	if err != nil {
		r.t.Logf("helm %s: %s", strings.Join(arguments, " "), errOut)
		return &refusal{errOut}
	}
	return nil
}

// refusal is an error of Helm.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func (r *release) kubectl(arguments ...string) {
	r.t.Helper()
	if out, err := r.tryKubectl(arguments...); err != nil {
		r.t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
}

// tryKubectl runs kubectl and returns its output.
func (r *release) tryKubectl(arguments ...string) (string, error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), controlplane.Kubectl(r.t), append([]string{"--kubeconfig", r.kubeconfig}, arguments...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// has fails the test unless all objects are in the cluster (want is true) or none is.
func (r *release) has(want bool, objects []*unstructured.Unstructured) {
	r.t.Helper()
	for _, o := range objects {
		err := r.kube.Get(r.t.Context(), client.ObjectKeyFromObject(o), o.DeepCopy())
		if err != nil && !apierrors.IsNotFound(err) {
			r.t.Fatalf("%s: %v", describe(o), err)
		}
		if there := err == nil; there != want {
			r.t.Errorf("%s: there %t, want %t", describe(o), there, want)
		}
	}
}

// without returns the objects that are not in others.
func without(objects, others []*unstructured.Unstructured) []*unstructured.Unstructured {
	known := map[string]bool{}
	for _, o := range others {
		known[describe(o)] = true
	}
	var left []*unstructured.Unstructured
	for _, o := range objects {
		if !known[describe(o)] {
			left = append(left, o)
		}
	}
	return left
}

func ofKind(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// A release is installed, takes the KeyServer that the manager has created, is upgraded with its CRDs, switches to the
// other form and back, and is uninstalled. Objects with keys remain.
func TestChartIsReleased(t *testing.T) {
	r := newRelease(t)
	embedded, scaledOut, keyServer := build(t, defaults), build(t, postgres), build(t, defaultsKeyServer)
	definitions := ofKind(embedded, "CustomResourceDefinition")

	rig.Must(t, r.helm("install", "keyserver", earlierChart(t), "--create-namespace"))
	r.has(true, embedded)
	r.has(true, build(t, volume))
	r.has(false, keyServer)
	manager := firstkeyserver.Creator{
		Client: r.kube, Reader: r.kube, Logger: slog.New(slog.DiscardHandler), ConfigMap: types.NamespacedName{Namespace: namespace, Name: "keyserver-first"},
	}
	rig.Succeeds(t, func() error { return manager.Create(t.Context()) }) // a new kind is available after a moment
	rig.Must(t, r.helm("upgrade", "keyserver", earlierChart(t), "--reuse-values", "--set", "keyServer.spec.externalURL=https://other.example"))
	ks := keyServer[0].DeepCopy()
	rig.Must(t, r.kube.Get(t.Context(), client.ObjectKeyFromObject(ks), ks))
	if got, _, _ := unstructured.NestedString(ks.Object, "spec", "externalURL"); got != "https://other.example" {
		t.Errorf("the release does not change the KeyServer: %s", got)
	}

	// The ConfigMap that the manager has published stays, and the CRDs are those of the new release.
	published := &corev1.ConfigMap{}
	published.Namespace, published.Name = namespace, "keyserver-ca"
	rig.Must(t, r.kube.Patch(t.Context(), published, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"ca.crt":"a certificate"}}`))))
	if got := shortNames(t, r); got != "earlier" {
		t.Fatalf("the definition of the earlier release has the short name %q", got)
	}
	rig.Must(t, r.helm("upgrade", "keyserver", chartDir, "--reuse-values"))
	if got := shortNames(t, r); got != "kskey" {
		t.Errorf("the definition was not upgraded: %q", got)
	}
	rig.Must(t, r.kube.Get(t.Context(), client.ObjectKeyFromObject(published), published))
	if published.Data["ca.crt"] != "a certificate" {
		t.Error("an upgrade takes away what the manager has published")
	}

	rig.Must(t, r.helm("upgrade", "keyserver", chartDir, "--reuse-values", "--set", "form=postgres"))
	r.has(true, scaledOut)
	r.has(false, without(embedded, scaledOut))
	rig.Must(t, r.helm("rollback", "keyserver"))
	r.has(true, embedded)
	r.has(false, without(scaledOut, embedded))

	rig.Must(t, r.helm("uninstall", "keyserver"))
	r.has(true, definitions)
	r.has(true, keyServer)
	r.has(true, build(t, volume))
	r.has(false, without(embedded, definitions))
}

// A second release is rejected with a reason in any namespace, before anything is written. The
// first one can still be upgraded.
func TestOneReleaseInACluster(t *testing.T) {
	r := newRelease(t)
	r.kubectl("create", "namespace", namespace)
	r.kubectl("create", "namespace", "elsewhere")
	rig.Must(t, r.helm("install", "keyserver", chartDir))
	for _, other := range [][2]string{{"keyserver", "elsewhere"}, {"another", "elsewhere"}, {"another", namespace}} {
		_, errOut, err := helm.Run(t, "install", other[0], chartDir, "--kubeconfig", r.kubeconfig, "--namespace", other[1])
		if want := "the cluster already has the release keyserver in the namespace " + namespace; err == nil || !strings.Contains(errOut, want) {
			t.Errorf("%s in %s: got %v, want %q\n%s", other[0], other[1], err, want, errOut)
		}
	}
	r.has(false, ofKind(chartIn(t, "elsewhere", ""), "Deployment"))
	rig.Must(t, r.helm("upgrade", "keyserver", chartDir, "--reuse-values"))
}

// The commands of docs/install.md work unchanged, for a new installation and to take over an installation by kubectl.
func TestChartAsDocumented(t *testing.T) {
	blocks := underHelm(t, "sh")
	if len(blocks) != 4 || !strings.HasPrefix(blocks[1], "kubectl wait ") || !strings.Contains(blocks[2], "--take-ownership") || !strings.HasPrefix(blocks[3], "helm test ") {
		t.Fatalf("docs/install.md has %d blocks of commands under Helm, and two are run here; the others need Pods (test/cluster)", len(blocks))
	}
	t.Run("installed", func(t *testing.T) {
		r := newRelease(t)
		r.shell(blocks[0])
		r.has(true, build(t, defaults))
		r.has(true, build(t, volume))
	})
	t.Run("taken over", func(t *testing.T) {
		r := newRelease(t)
		r.kubectl("apply", "-k", filepath.Join(configDir, volume))
		r.kubectl("apply", "-k", filepath.Join(configDir, defaults))
		if err := r.helm("install", "keyserver", chartDir); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
			t.Errorf("without being told: %v", err)
		}
		// Objects with keys stay outside the release, and keep their values.
		r.kubectl("apply", "--server-side", "-k", filepath.Join(configDir, defaultsKeyServer))
		r.shell(strings.TrimSpace(blocks[2]) + " --set keyServer.spec.externalURL=https://other.example")
		r.has(true, build(t, defaults))
		for _, o := range append(ofKind(build(t, volume), "PersistentVolumeClaim"), build(t, defaultsKeyServer)...) {
			rig.Must(t, r.kube.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			url, _, _ := unstructured.NestedString(o.Object, "spec", "externalURL")
			if o.GetAnnotations()["meta.helm.sh/release-name"] != "" || url == "https://other.example" {
				t.Errorf("%s is changed: %v %s", describe(o), o.GetAnnotations(), url)
			}
		}

		theirs := build(t, defaultsKeyServer)[0]
		rig.Must(t, r.kube.Delete(t.Context(), theirs.DeepCopy()))
		theirs.SetName("theirs")
		rig.Must(t, r.kube.Create(t.Context(), theirs))
		rig.Must(t, r.helm("upgrade", "keyserver", chartDir, "--reuse-values"))
		r.has(false, build(t, defaultsKeyServer))
	})
}

// shell runs commands at the root of the checkout, with the kubectl and the Helm of the test.
func (r *release) shell(commands string) {
	r.t.Helper()
	bin := r.t.TempDir()
	rig.Must(r.t, os.Symlink(controlplane.Kubectl(r.t), filepath.Join(bin, "kubectl")))
	rig.Must(r.t, os.Symlink(helm.Program(r.t), filepath.Join(bin, "helm")))
	cmd := exec.CommandContext(r.t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = filepath.Dir(configDir)
	cmd.Env = []string{"PATH=" + bin, "HOME=" + r.t.TempDir(), "KUBECONFIG=" + r.kubeconfig}
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// earlierChart returns the chart with a CRD that has another short name.
func earlierChart(t *testing.T) string {
	t.Helper()
	directory := filepath.Join(t.TempDir(), "chart")
	rig.Must(t, os.CopyFS(directory, os.DirFS(chartDir)))
	file := filepath.Join(directory, "manifests", "crds.yaml")
	text, err := os.ReadFile(file)
	rig.Must(t, err)
	changed := strings.Replace(string(text), "- kskey\n", "- earlier\n", 1)
	if changed == string(text) {
		t.Fatal("no definition has the short name kskey")
	}
	rig.Must(t, os.WriteFile(file, []byte(changed), 0o600))
	return directory
}

// shortNames returns the short names in the CRD of Key.
func shortNames(t *testing.T, r *release) string {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	rig.Must(t, r.kube.Get(t.Context(), client.ObjectKey{Name: "keys.trust.keyserver.dev"}, definition))
	return strings.Join(definition.Spec.Names.ShortNames, " ")
}
