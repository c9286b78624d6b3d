package install

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The commands of docs/install.md switch from one form to the other: afterwards the objects of the
// new form exist, and none that only the former one has. No Pods run here, so that commands that
// wait for a Job, a volume or the manager are left out. test/cluster runs all of them.
func TestFormsAreSwitchedAsDocumented(t *testing.T) {
	toMany, toOne := blocksUnder(t, "### Move from one Pod to many", "sh"), blocksUnder(t, "### Move from many to one Pod", "sh")
	if len(toMany) != 3 || len(toOne) != 3 {
		t.Fatalf("docs/install.md has %d and %d blocks of commands, and 3 and 3 are known", len(toMany), len(toOne))
	}
	for line := range strings.Lines(toMany[1]) {
		if !strings.Contains(line, "job/keyserver-migrate") {
			t.Errorf("this is not run: %s", line)
		}
	}
	run := func(r *release, block string) {
		for _, waits := range []string{
			" &&\n  kubectl wait --for=condition=Ready keyserver/default --timeout=5m",
			"kubectl -n keyserver-system wait --for=condition=Complete job/keyserver-migrate --timeout=10s &&\n  ",
			"kubectl -n keyserver-system wait --for=condition=Complete job/keyserver-back --timeout=10s &&\n  ",
			"kubectl -n keyserver-system wait --for=condition=Complete job/keyserver-back --timeout=30m &&\n  ",
			"kubectl -n keyserver-system logs job/keyserver-back\n",
		} {
			block = strings.ReplaceAll(block, waits, "")
		}
		r.shell(block)
	}

	embedded := slices.Concat(build(t, volume), build(t, defaults), build(t, defaultsKeyServer))
	scaledOut := slices.Concat(build(t, volume), build(t, postgres), build(t, postgresKeyServer))
	r := newRelease(t)
	for _, first := range []string{volume, defaults, defaultsKeyServer} {
		r.apply(first)
	}
	r.only(embedded)

	run(r, toMany[0])
	r.only(slices.Concat(embedded, build(t, migration)))
	run(r, toMany[2])
	r.only(scaledOut)

	// The omitted first block creates an empty volume and this Secret.
	r.kubectl("-n", namespace, "create", "secret", "generic", "keyserver-back")
	run(r, toOne[1])
	scaledDown := without(scaledOut, ofKind(scaledOut, "HorizontalPodAutoscaler"))
	r.only(slices.Concat(scaledDown, build(t, migrationBack)))
	run(r, toOne[2])
	r.only(embedded)
}

// apply applies a kustomization, and waits until new CRDs are established.
func (r *release) apply(kustomization string) {
	r.t.Helper()
	flags := []string{"apply", "-k", filepath.Join(configDir, kustomization)}
	if kustomization == defaultsKeyServer {
		flags = append(flags, "--server-side") // as in docs/install.md
	}
	r.kubectl(flags...)
	if kustomization == defaults {
		r.kubectl("wait", "--for=condition=Established", "crds", "--all", "--timeout=1m")
	}
}

// only fails the test unless the cluster has exactly these objects of their kinds.
func (r *release) only(objects []*unstructured.Unstructured) {
	r.t.Helper()
	r.has(true, objects)
	known := map[string]bool{}
	for _, o := range objects {
		known[describe(o)] = true
	}
	asked := map[schema.GroupVersionKind]bool{}
	for _, o := range slices.Concat(objects, build(r.t, defaults), build(r.t, postgres), build(r.t, migration), build(r.t, migrationBack)) {
		kind := o.GroupVersionKind()
		if asked[kind] {
			continue
		}
		asked[kind] = true
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.kube.List(r.t.Context(), list, client.MatchingLabels{"app.kubernetes.io/part-of": "keyserver-operator"}); err != nil {
			r.t.Fatalf("list %s: %v", kind.Kind, err)
		}
		for _, there := range list.Items {
			if !known[describe(&there)] {
				r.t.Errorf("%s is left behind", describe(&there))
			}
		}
	}
}
