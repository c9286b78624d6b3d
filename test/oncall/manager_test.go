package oncall

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

// alertsOfManagers are the alerts that TestAlertsOfManagers causes.
var alertsOfManagers = []string{
	"KeyServerCallsRefused", "KeyServerDriftNotRepaired", "KeyServerDriftKeepsComingBack", "KeyServerManagerMissing", "KeyServerNotReady",
	"KeyServerObjectsNotReady", "KeyServerTrustExpires", "KeyServerVerificationSlow",
}

// operated is a cluster with a manager, and a key server that the cluster declares.
type operated struct {
	*keyServer
	kubeconfig, home string
	metrics          string // address of the manager's metrics
	manager          *program.Process
	administrator    *client.Client
	operator         schema.Principal // the principal that the manager logs in as
}

func newOperated(t *testing.T) *operated {
	t.Helper()
	environment := controlplane.Start(t)
	o := &operated{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), home: t.TempDir(), metrics: rig.FreeAddress(t, "127.0.0.1")}
	rig.Must(t, os.WriteFile(o.kubeconfig, environment.KubeConfig, 0o600))
	o.keyServer = serve(t, built, "--listen", rig.FreeAddress(t, "127.0.0.1"))
	o.administrator = o.admin(t)
	saved, err := o.administrator.CreatePasswordPrincipal(t.Context(), schema.CreatePasswordPrincipalRequest{
		Name: "operator", Password: rig.Password, RoleIDs: []schema.HexID{schema.HexID(keyserver.RoleAdministrator)},
	})
	rig.Must(t, err)
	o.operator = *saved.Principal
	o.startManager(t)
	t.Cleanup(func() { o.manager.Kill() }) // the kube-apiserver stops later
	o.credentials(t, rig.Password)
	ca, err := os.ReadFile(filepath.Join(o.dataDir, "ca.crt"))
	rig.Must(t, err)
	o.apply(t, fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: KeyServer
metadata: {name: default}
spec:
  url: https://%s
  caBundle: {inline: %q}
  credentials: {administrator: {secretRef: {namespace: kube-system, name: operator}}}
  grants:
    - name: all
      namespaces: {selector: {}}
      kinds: [Role, TrustedCA]
      names: ["*"]
      operations: ["duty:administration", "duty:trust", "duty:key use", "duty:audit"]
      adopt: true
`, o.Address, ca))
	o.ready(t, "ks/default")
	return o
}

// credentials sets the password of the manager.
func (o *operated) credentials(t *testing.T, password string) {
	t.Helper()
	o.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: operator, namespace: kube-system}
stringData: {username: operator, password: %q}
`, password))
}

func (o *operated) startManager(t *testing.T) {
	t.Helper()
	var err error
	o.manager, err = built.Start("manager", "--kubeconfig", o.kubeconfig, "--metrics-listen", o.metrics,
		"--leader-elect", "--leader-elect-namespace", "default",
		"--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s", "--leader-elect-retry-period", "300ms")
	rig.Must(t, err)
}

// kubectl runs kubectl. Its error includes the standard error of kubectl.
func (o *operated) kubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out, errOut strings.Builder
	cmd := exec.CommandContext(t.Context(), controlplane.Kubectl(t), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+o.kubeconfig, "HOME="+o.home)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err), errors.New(errOut.String()))
	}
	return out.String(), nil
}

func (o *operated) apply(t *testing.T, manifest string) {
	t.Helper()
	_, err := o.kubectl(t, manifest, "apply", "-f", "-")
	rig.Must(t, err)
}

func (o *operated) delete(t *testing.T, objects ...string) {
	t.Helper()
	_, err := o.kubectl(t, "", append([]string{"delete", "--timeout=60s"}, objects...)...)
	rig.Must(t, err)
}

func (o *operated) ready(t *testing.T, object string) {
	t.Helper()
	_, err := o.kubectl(t, "", "wait", "--for=condition=Ready", "--timeout=120s", object)
	rig.Must(t, err)
}

// says waits until the output of a command of the runbook has a text.
func (o *operated) says(t *testing.T, want string, args ...string) {
	t.Helper()
	rig.Succeeds(t, func() error {
		out, err := o.kubectl(t, "", args...)
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("kubectl %s does not say %q:\n%s", strings.Join(args, " "), want, out)
		}
		return err
	})
}

// role returns the manifest of a Role with a management policy.
func role(name, roleName, policy string) string {
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: Role
metadata: {name: %s, namespace: default}
spec: {roleName: %q, operations: [HMAC Data], managementPolicy: %s}
`, name, roleName, policy)
}

func trustedCA(ca rig.CA) string {
	return fmt.Sprintf(`
apiVersion: trust.keyserver.dev/v1beta1
kind: TrustedCA
metadata: {name: partners, namespace: default}
spec: {certificate: {inline: %q}}
`, ca.PEM)
}

// role returns a role of the key server.
func (o *operated) role(t *testing.T, name string) schema.Role {
	t.Helper()
	list, err := o.administrator.ListRoles(t.Context())
	rig.Must(t, err)
	for _, r := range list.Roles {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("the key server has no role %s", name)
	return schema.Role{}
}

// outside changes a role on the key server directly.
func (o *operated) outside(t *testing.T, name string, operations ...schema.HexID) {
	t.Helper()
	_, err := o.administrator.UpdateRole(t.Context(), schema.UpdateRoleRequest{ID: o.role(t, name).ID, Operations: operations})
	rig.Must(t, err)
}

// roles sets the roles of the manager's principal.
func (o *operated) roles(t *testing.T, ids ...schema.HexID) {
	t.Helper()
	_, err := o.administrator.UpdatePrincipalRoles(t.Context(), schema.UpdatePrincipalRolesRequest{ID: o.operator.ID, RoleIDs: append([]schema.HexID{}, ids...)})
	rig.Must(t, err)
}

// TestAlertsOfManagers causes the alerts one after the other in one cluster.
func TestAlertsOfManagers(t *testing.T) {
	t.Parallel() // with TestAlertsOfKeyServers
	o := newOperated(t)
	w := newWatch(t, map[string]string{"manager": o.metrics, "api": o.keyServer.metrics})
	hmacData, exportKey := schema.HexID(keyserver.OpHMAC.ID), schema.HexID(keyserver.OpExportKey.ID)
	all := map[string]fault{
		"KeyServerManagerMissing": {
			provoke: func(*testing.T) { o.manager.Kill() },
			cure: func(t *testing.T) {
				o.says(t, "manager.trust.keyserver.dev", "-n", "default", "get", "lease")
				o.startManager(t)
			},
		},
		"KeyServerNotReady": {
			provoke: func(t *testing.T) { o.credentials(t, "another password") },
			cure: func(t *testing.T) {
				o.says(t, "INVALID_CREDENTIALS", "get", "ks", "-o", "wide")
				o.credentials(t, rig.Password)
			},
		},
		"KeyServerObjectsNotReady": {
			labels: map[string]string{"kind": "Role", "reason": "Conflict"},
			provoke: func(t *testing.T) {
				o.apply(t, role("older", "Claimed", "Manage"))
				o.ready(t, "ksrole/older")
				o.apply(t, role("younger", "Claimed", "Manage"))
			},
			cure: func(t *testing.T) {
				o.says(t, "is claimed by", "get", "trust", "-A", "-o", "wide")
				o.delete(t, "ksrole/younger")
				o.delete(t, "ksrole/older")
			},
		},
		"KeyServerTrustExpires": {
			labels: map[string]string{"kind": "TrustedCA", "namespace": "default", "name": "partners"},
			provoke: func(t *testing.T) {
				o.apply(t, trustedCA(rig.NewCAUntil(t, "partners", time.Now().AddDate(0, 0, 10))))
				o.ready(t, "tca/partners")
			},
			cure: func(t *testing.T) {
				o.says(t, "Not After", "describe", "tca/partners")
				o.apply(t, trustedCA(rig.NewCA(t, "their successor")))
			},
		},
		"KeyServerDriftKeepsComingBack": {
			labels: map[string]string{"kind": "Role"},
			provoke: func(t *testing.T) {
				o.apply(t, role("contended", "Contended", "Manage"))
				o.ready(t, "ksrole/contended")
				for range 15 {
					o.outside(t, "Contended", hmacData, exportKey)
					rig.Soon(t, "it is changed back", func() bool { return len(o.role(t, "Contended").Operations) == 1 })
				}
			},
			cure: func(t *testing.T) {
				o.says(t, "DriftFound", "get", "events", "-A", "--field-selector", "type=Warning")
			},
		},
		"KeyServerDriftNotRepaired": {
			labels: map[string]string{"kind": "Role"},
			provoke: func(t *testing.T) {
				for _, name := range []string{"one", "two"} {
					o.apply(t, role("observed-"+name, "Observed "+name, "Manage"))
					o.ready(t, "ksrole/observed-"+name)
					o.apply(t, role("observed-"+name, "Observed "+name, "Observe"))
					o.ready(t, "ksrole/observed-"+name)
					o.outside(t, "Observed "+name, hmacData, exportKey)
				}
			},
			cure: func(t *testing.T) {
				o.says(t, "Drifted", "get", "trust", "-A", "-o", "wide")
				o.outside(t, "Observed one", hmacData)
				o.apply(t, role("observed-two", "Observed two", "Manage"))
			},
		},
		"KeyServerVerificationSlow": {
			labels: map[string]string{"kind": "Role"},
			provoke: func(t *testing.T) {
				defer o.Freeze(t)()
				o.apply(t, role("waits", "Waits", "Manage"))
				rig.Within(t, 3*rig.Patience, "it waits for more than a minute", func() bool {
					since, err := o.kubectl(t, "", "get", "ksrole/waits", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastTransitionTime}`)
					rig.Must(t, err)
					at, err := time.Parse(time.RFC3339, since)
					return err == nil && time.Since(at) > 62*time.Second
				})
			},
			cure: func(t *testing.T) { o.ready(t, "ksrole/waits") },
		},
		"KeyServerCallsRefused": {
			labels:  map[string]string{"keyserver": "default"},
			provoke: func(t *testing.T) { o.roles(t) },
			cure: func(t *testing.T) {
				o.says(t, "no role of operator grants", "get", "ks", "-o", "wide")
				o.roles(t, schema.HexID(keyserver.RoleAdministrator))
				_, err := o.kubectl(t, "", "annotate", "--overwrite", "ks/default", "trust.keyserver.dev/reconcile-requested-at="+time.Now().Format(time.RFC3339))
				rig.Must(t, err)
				o.ready(t, "ks/default")
			},
		},
	}
	for _, alert := range alertsOfManagers {
		f := all[alert]
		f.alert = alert
		if !t.Run(alert, func(t *testing.T) { w.goesThrough(t, f) }) {
			return // the next fault must not begin during this one
		}
	}
}
