// Package kms lets a real kube-apiserver encrypt its data with a key lineage of a real key server, through
// "keyserver-agent kms", and inspects etcd.
package kms

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	api "k8s.io/kms/apis/v2"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

const (
	issuer   = "https://machines.example"
	audience = "https://keys.example"
	subject  = "system:machine:control-plane-1"
)

var built program.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m, &built, false)) }

// world is a key server with a key lineage, and a machine principal that may only encrypt and decrypt with it.
type world struct {
	*testserver.Server
	admin   *client.Client
	lineage schema.HiddenLink
	machine schema.Principal
	issuer  *tokens.Issuer
	token   string // path of the token file
	ca      string // path of the CA file
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{token: filepath.Join(dir, "token"), ca: filepath.Join(dir, "ca.crt"), issuer: tokens.NewIssuer(t, issuer, audience)}
	w.Server = testserver.Start(t, func(c *server.Config) {
		c.Providers = server.Providers{OIDCIssuer: issuer, OIDCAudiences: []string{audience}, OIDCKeysFile: w.issuer.KeysFile}
	})
	rig.Must(t, os.WriteFile(w.ca, w.CA(t), 0o600))

	w.admin = w.Admin(t)
	kept := false
	minted, err := w.admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "AES-256", Exportable: &kept})
	rig.Must(t, err)
	w.lineage = minted.TTag
	role, err := w.admin.CreateRole(t.Context(), schema.CreateRoleRequest{Name: "Control Plane", Operations: []schema.HexID{
		schema.HexID(keyserver.OpEncrypt.ID), schema.HexID(keyserver.OpDecrypt.ID),
	}})
	rig.Must(t, err)
	saved, err := w.admin.CreateXAuthPrincipal(t.Context(), schema.CreateXAuthPrincipalRequest{
		Name: "control-plane-1", Issuer: issuer, Subject: subject, RoleIDs: []schema.HexID{role.ID},
	})
	rig.Must(t, err)
	w.machine = *saved.Principal
	w.grant(t)
	w.writeToken(t, subject)
	return w
}

// grant allows the machine to use the newest key of the lineage.
func (w *world) grant(t *testing.T) {
	t.Helper()
	_, err := w.admin.GrantACL(t.Context(), schema.ACLChangeRequest{
		TTag: w.lineage, SystemID: w.machine.SystemID, PrincipalID: w.machine.PrincipalID, Rights: schema.RightNamed("READ"),
	})
	rig.Must(t, err)
}

// writeToken replaces the token file, as its issuer does.
func (w *world) writeToken(t *testing.T, subject string) {
	t.Helper()
	rig.Must(t, os.WriteFile(w.token+".new", []byte(w.issuer.Token(t, subject, time.Hour)), 0o600))
	rig.Must(t, os.Rename(w.token+".new", w.token))
}

// rotate creates a successor of the newest key, and returns it.
func (w *world) rotate(t *testing.T) schema.HiddenLink {
	t.Helper()
	rotated, err := w.admin.RotateKey(t.Context(), schema.KeyRequest{TTag: w.lineage})
	rig.Must(t, err)
	return rotated.TTag
}

// plugin is a running KMS plugin and its client.
type plugin struct {
	api.KeyManagementServiceClient
	*program.Process
	socket string
}

// start runs the plugin at a socket until the test ends, and waits until it is ready.
func (w *world) start(t *testing.T, socket string, args ...string) *plugin {
	t.Helper()
	process, err := built.Named("keyserver-agent").Start(append([]string{
		"kms", "--server", w.URL(), "--ca-file", w.ca, "--token-file", w.token, "--lineage", w.lineage.String(), "--listen", "unix://" + socket,
	}, args...)...)
	rig.Must(t, err)
	p := &plugin{Process: process, socket: socket}
	t.Cleanup(p.Kill)
	rig.Soon(t, "the plugin is ready", func() bool {
		select {
		case <-p.Exited():
			t.Fatalf("the plugin ended: %s", p.Log())
		default:
		}
		return strings.Contains(p.Log(), "ready: unix://"+socket)
	})
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	rig.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	p.KeyManagementServiceClient = api.NewKeyManagementServiceClient(conn)
	return p
}

// within returns a context with the timeout of kube-apiserver.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// says waits until the plugin returns a status with this code and message.
func (p *plugin) says(t *testing.T, what string, code codes.Code, sentence string) {
	t.Helper()
	rig.Succeeds(t, func() error { // the plugin caches a status for some seconds, and a change reaches the key server's cache later
		_, err := p.Status(within(t), &api.StatusRequest{})
		if status.Code(err) != code || code != codes.OK && !strings.Contains(err.Error(), sentence) {
			return fmt.Errorf("%s: %w; want %s with %q", what, err, code, sentence)
		}
		return nil
	})
}

// encrypt encrypts a seed. The plugin may refuse this.
func (p *plugin) encrypt(t *testing.T) (*api.EncryptResponse, error) {
	t.Helper()
	return p.Encrypt(within(t), &api.EncryptRequest{Plaintext: seed, Uid: "call-of-a-test"})
}

var seed = bytes.Repeat([]byte("seed"), 8)

// The plugin reports each problem with a code and a message. After the cause is repaired, it works without a restart.
func TestWhatIsWrongIsSaid(t *testing.T) {
	w := newWorld(t)
	p := w.start(t, filepath.Join(t.TempDir(), "s"))
	first, err := p.encrypt(t)
	rig.Must(t, err)
	if first.GetKeyId() != w.lineage.String() {
		t.Errorf("it was encrypted by %s", first.GetKeyId())
	}
	refused := func(what string, code codes.Code, sentence string) {
		t.Helper()
		rig.Succeeds(t, func() error { // a change reaches the caches within one second
			if _, err := p.encrypt(t); status.Code(err) != code || !strings.Contains(err.Error(), sentence) {
				return fmt.Errorf("%s: %w; want %s with %q", what, err, code, sentence)
			}
			return nil
		})
		p.says(t, what, code, sentence)
	}
	healed := func(what string) {
		t.Helper()
		rig.Succeeds(t, func() error {
			if _, err := p.encrypt(t); err != nil {
				return fmt.Errorf("after %s: %w", what, err)
			}
			return nil
		})
		p.says(t, "after "+what, codes.OK, "")
	}

	_, err = w.admin.RevokeACL(t.Context(), schema.ACLRevokeRequest{TTag: w.lineage, SystemID: w.machine.SystemID, PrincipalID: w.machine.PrincipalID})
	rig.Must(t, err)
	refused("not on the list of the key", codes.PermissionDenied, "ACL_DENIED")
	w.grant(t)
	healed("the list has the machine again")

	_, err = w.admin.DisableKey(t.Context(), schema.KeyRequest{TTag: w.lineage})
	rig.Must(t, err)
	refused("the only key is disabled", codes.FailedPrecondition, "KEY_DISABLED")
	if _, err := p.Decrypt(within(t), &api.DecryptRequest{Ciphertext: first.GetCiphertext(), KeyId: first.GetKeyId()}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), first.GetKeyId()) {
		t.Errorf("decrypt by a key that is disabled: %v", err)
	}
	_, err = w.admin.EnableKey(t.Context(), schema.KeyRequest{TTag: w.lineage})
	rig.Must(t, err)
	healed("the key is enabled")

	// If the session is ended, the plugin opens the next session without a failed request.
	_, err = w.admin.EndSessionsOfPrincipal(t.Context(), schema.ByID{ID: w.machine.ID})
	rig.Must(t, err)
	healed("its session was ended")

	// The plugin reads the token file at each login.
	w.writeToken(t, "system:machine:stranger")
	_, err = w.admin.EndSessionsOfPrincipal(t.Context(), schema.ByID{ID: w.machine.ID})
	rig.Must(t, err)
	refused("the token of a stranger", codes.Unauthenticated, "INVALID_CREDENTIALS")
	rig.Must(t, os.Remove(w.token))
	refused("no token", codes.Unavailable, "read the service account token")
	w.writeToken(t, subject)
	healed("the token is there again")

	// Encrypted data is bound to its purpose, and the audit log has the name of the call.
	by := client.For(t.Context(), "the test")
	if _, err := w.admin.Decrypt(by, schema.DecryptRequest{Lineage: &w.lineage, Ciphertext: first.GetCiphertext()}); !client.IsCode(err, "INVALID_ARGUMENT") {
		t.Errorf("without what it is bound to: %v", err)
	}
	use := schema.Base64("keyserver-operator kms v2")
	opened, err := w.admin.Decrypt(by, schema.DecryptRequest{Lineage: &w.lineage, Ciphertext: first.GetCiphertext(), AssociatedData: &use})
	if err != nil || !bytes.Equal(opened.Data, seed) {
		t.Errorf("by hand, as docs/kms.md has it: %v", err)
	}
	other, err := w.admin.Encrypt(by, schema.EncryptRequest{Lineage: &w.lineage, Data: seed})
	rig.Must(t, err)
	if _, err := p.Decrypt(within(t), &api.DecryptRequest{Ciphertext: other.Ciphertext, KeyId: other.TTag.String()}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("what was encrypted for something else: %v", err)
	}
	limit := 1000
	rows, err := w.admin.ListAuditEntries(t.Context(), schema.AuditQuery{Limit: &limit})
	rig.Must(t, err)
	if said, _ := json.Marshal(rows); !bytes.Contains(said, []byte(`"kms Encrypt call-of-a-test"`)) {
		t.Error("no row of the trail names the call")
	}
	if err := p.Stop(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := os.Stat(p.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left over: %v", err)
	}
	for what, secret := range map[string][]byte{"a token": []byte("eyJ"), "what was encrypted": seed} {
		if strings.Contains(p.Log(), string(secret)) {
			t.Errorf("the log has %s", what)
		}
	}
}

// The plugin also reports a missing key lineage, and a lineage of another key server.
func TestWrongLine(t *testing.T) {
	w := newWorld(t)
	w.lineage = schema.HiddenLink("\x00\x00\x00\x01nowhere!")
	address := rig.FreeAddress(t, "127.0.0.1")
	p := w.start(t, filepath.Join(t.TempDir(), "s"), "--metrics-listen", address)
	p.says(t, "no such line", codes.NotFound, "KEY_NOT_FOUND")
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK} {
		answer, err := http.Get("http://" + address + path)
		rig.Must(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(answer.Body)
		rig.Must(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %s", path, answer.Status)
		}
		if path == "/metrics" && !strings.Contains(body.String(), `keyserver_kms_calls_total{code="NotFound",method="Status"}`) {
			t.Errorf("the metrics are %s", body.String())
		}
	}
}
