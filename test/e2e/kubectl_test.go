package e2e

import (
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestKubectl runs the usual commands of a platform engineer, with one installation for all steps.
func TestKubectl(t *testing.T) {
	t.Parallel() // it mostly waits, for its own cluster
	w := newWorld(t)
	t.Run("refusals reach the terminal as sentences", w.refusals)
	t.Run("apply, wait, get, edit, delete", w.life)
	t.Run("server-side apply", w.serverSideApply)
	t.Run("health", w.health)
	t.Run("secrets", w.secrets)
	t.Run("every kind under Git", w.everyKind)
}

func (w *world) refusals(t *testing.T) {
	for _, tc := range []struct{ reason, manifest, says string }{
		{"two sources", `
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: refused}
spec: {certificate: {peerRef: {name: a}, configMapKeyRef: {name: a, key: b}}}`,
			"give exactly one of inline, secretKeyRef, configMapKeyRef and peerRef"},
		{"a peer of itself", `
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedServer
metadata: {name: refused}
spec: {friendlyName: a, trustBlob: {peerRef: {name: default}}}`,
			"a key server is not its own peer"},
		{"a misspelt member", `
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: refused}
spec: {roleName: a, operations: [], resyncIntervall: 1h}`,
			`unknown field "spec.resyncIntervall"`},
	} {
		_, err := w.try(t, tc.manifest, "apply", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v; want %q", tc.reason, err, tc.says)
		}
	}
}

func (w *world) life(t *testing.T) {
	w.apply(t, role("signer", "Signer", "HMAC Data"), trustedCA(t, "partners"))
	w.wait(t, "ksrole/signer", "Ready")
	w.wait(t, "tca/partners", "Ready")
	if r := w.roles(t)["Signer"]; len(r.Operations) != 1 {
		t.Errorf("the role Signer has the operations %v, want one", r.Operations)
	}

	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"get", "ks"}, []string{"NAME", "READY", "REASON", "URL", "AGE", "default", "True", "Verified"}},
		{[]string{"get", "tca"}, []string{"NAME", "READY", "VERIFIED", "REASON", "CERTIFICATE", "partners", "True"}},
		{[]string{"get", "ksrole", "-o", "wide"}, []string{"KEYSERVER", "MESSAGE", "signer", "created: "}},
		{[]string{"get", "trust", "-A"}, []string{"role.trust.keyserver.dev/signer", "trustedca.trust.keyserver.dev/partners"}},
		{[]string{"get", "events"}, []string{"Created", "created role"}},
		{[]string{"explain", "trustedserver.spec.trustBlob"}, []string{"peerRef", "inline", "secretKeyRef"}},
	} {
		out := w.kubectl(t, "", tc.args...)
		for _, want := range tc.want {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl %s says nothing of %q:\n%s", strings.Join(tc.args, " "), want, out)
			}
		}
	}
	for _, short := range []string{"tserver", "ptrust", "aclt"} {
		w.kubectl(t, "", "get", short)
	}

	before := w.countWrites(t)
	w.apply(t, role("signer", "Signer", "HMAC Data", "Authorize Key"))
	w.wait(t, "ksrole/signer", "Ready")
	rig.Soon(t, "the edit is on the key server", func() bool { return len(w.roles(t)["Signer"].Operations) == 2 })
	w.apply(t, role("signer", "Signer", "HMAC Data", "Authorize Key"))
	if n := w.countWrites(t) - before; n != 1 {
		t.Errorf("one edit, applied twice, cost %d writes", n)
	}

	w.kubectl(t, "", "delete", "ksrole/signer", "tca/partners")
	if roles := w.roles(t); len(roles) != 0 {
		t.Errorf("kubectl delete has returned, and the key server still has %v", roles)
	}
	list, err := w.admin.ListTrustedCAs(t.Context(), schema.TrustedCAsQuery{})
	if err != nil || len(list.TrustedCAs) != 0 {
		t.Errorf("kubectl delete has returned, and the key server still trusts %d CAs (%v)", len(list.TrustedCAs), err)
	}
}

func (w *world) serverSideApply(t *testing.T) {
	apply := func(manager, manifest string, more ...string) error {
		_, err := w.try(t, manifest, append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, more...)...)
		return err
	}
	if err := apply("one", role("shared", "Shared", "HMAC Data")); err != nil {
		t.Fatal(err)
	}
	err := apply("two", role("shared", "Taken", "List Roles"))
	if err == nil || !strings.Contains(err.Error(), `conflict with "one"`) || !strings.Contains(err.Error(), ".spec.roleName") {
		t.Errorf("a field of another manager was changed: %v", err)
	}
	if err := apply("two", role("shared", "Taken", "List Roles"), "--force-conflicts"); err != nil {
		t.Fatal(err)
	}
	w.wait(t, "ksrole/shared", "Ready")
	rig.Soon(t, "the forced name and the operations of both are on the key server", func() bool {
		return len(w.roles(t)["Taken"].Operations) == 2
	})

	// Two field managers apply different members of one template.
	for _, name := range []string{"Readers", "Writers"} {
		if _, err := w.admin.CreateGroup(t.Context(), schema.CreateGroupRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	members := func() (n int) {
		list, err := w.admin.ListACLTemplates(t.Context(), schema.ACLTemplateQuery{})
		if err != nil || len(list.Templates) != 1 {
			return -1
		}
		held, err := w.admin.ListACLTemplateMembers(t.Context(), schema.ByID{ID: list.Templates[0].ID})
		if err != nil {
			return -1
		}
		return len(held.Members)
	}
	if err := apply("one", template("keys", "Keys", member("group/Readers", "READ"))); err != nil {
		t.Fatal(err)
	}
	only := strings.ReplaceAll(template("keys", "", member("group/Writers", "WRITE")), `templateName: "", `, "")
	if err := apply("two", only); err != nil {
		t.Fatal(err)
	}
	w.wait(t, "aclt/keys", "Ready")
	rig.Soon(t, "the members of both, and the operator's own, are on the key server", func() bool { return members() == 3 })
	if err := apply("one", template("keys", "Keys")); err != nil {
		t.Fatal(err)
	}
	rig.Soon(t, "each manager takes away only its own", func() bool { return members() == 2 })
	w.kubectl(t, "", "delete", "ksrole/shared", "aclt/keys")

	// docs/resources.md, "Under Git": objects that were applied without --server-side first have to be applied
	// completely with it. Then other field managers can apply their own fields.
	held := template("keys", "Keys", member("group/Readers", "READ"))
	w.kubectl(t, held, "apply", "-f", "-")
	if err := apply("kubectl", held); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := apply("two", only); err != nil {
			t.Fatal(err)
		}
	}
	w.wait(t, "aclt/keys", "Ready")
	rig.Soon(t, "nobody's members were taken away", func() bool { return members() == 3 })
	w.kubectl(t, "", "delete", "aclt/keys")
}
