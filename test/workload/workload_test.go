// Package workload logs in as a Pod does: with tokens of service accounts that a real kube-apiserver issues.
package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/trustfiles"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
)

const (
	namespace = "shop"
	audience  = "https://keys.example"
)

// cluster is a real kube-apiserver. No controllers run, so that only the tests change objects.
var cluster struct {
	config *rest.Config
	kube   *kubernetes.Clientset
	issuer string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if controlplane.Missing() {
		return need.Suite(controlplane.Programs, controlplane.Remedy)
	}
	environment, err := controlplane.Begin()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the control plane:", err)
		return 1
	}
	defer func() { _ = environment.Stop() }()
	if err := prepare(environment.Config); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the cluster:", err)
		return 1
	}
	return m.Run()
}

func prepare(config *rest.Config) (err error) {
	cluster.config = config
	if cluster.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	ctx := context.Background()
	about, err := cluster.kube.RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(ctx)
	if err != nil {
		return err
	}
	var discovered struct{ Issuer string }
	if err := json.Unmarshal(about, &discovered); err != nil {
		return err
	}
	cluster.issuer = discovered.Issuer
	_, err = cluster.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return err
}

// account makes a service account and returns its subject.
func account(t testing.TB, name string) string {
	t.Helper()
	accounts := cluster.kube.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	rig.Must(t, err)
	return "system:serviceaccount:" + namespace + ":" + name
}

// token returns a token of the service account for the audiences, as kubelet would project it into a Pod.
func token(t testing.TB, name string, audiences ...string) string {
	t.Helper()
	seconds := int64(600)
	request, err := cluster.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	rig.Must(t, err)
	return request.Status.Token
}

// keysFile returns a file with the current keys of the issuer, written as the manager does.
func keysFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jwks.json")
	rig.Must(t, trustfiles.IssuerKeys{
		Fetch: trustfiles.FromCluster(cluster.kube.RESTClient()), File: file, Issuer: cluster.issuer, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler),
	}.Refresh(t.Context()))
	return file
}

// kubeconfig returns a kubeconfig of a service account for serve.
func kubeconfig(t testing.TB, account, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	rig.Must(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: url, CertificateAuthorityData: cluster.config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token(t, account)}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// reviewer makes a service account that may only review tokens.
func reviewer(t testing.TB, name string) {
	t.Helper()
	account(t, name)
	meta := metav1.ObjectMeta{Name: name}
	_, err := cluster.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
	}}, metav1.CreateOptions{})
	rig.Must(t, err)
	_, err = cluster.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	rig.Must(t, err)
}

// world is a server, and the token file of its workload.
type world struct {
	*testserver.Server
	file string
}

func newWorld(t testing.TB, subject string, providers server.Providers) world {
	t.Helper()
	w := world{file: filepath.Join(t.TempDir(), "token"), Server: testserver.Start(t, func(c *server.Config) { c.Providers = providers })}
	if subject != "" {
		_, err := w.Admin(t).CreateXAuthPrincipal(t.Context(), schema.CreateXAuthPrincipalRequest{
			Name: subject, Issuer: cluster.issuer, Subject: subject, RoleIDs: []schema.HexID{},
		})
		rig.Must(t, err)
	}
	return w
}

// login logs in with a new client and a token. It returns the session.
func (w world) login(t testing.TB, token string) (schema.Session, error) {
	t.Helper()
	rig.Must(t, os.WriteFile(w.file, []byte(token), 0o600))
	c, err := client.New(client.Options{BaseURL: w.URL(), RootCAs: w.Pool(t), Credentials: client.KubernetesCredentials(w.file)})
	rig.Must(t, err)
	return c.GetCurrentSession(t.Context())
}

// gets checks the code of a login. An empty code means success.
func (w world) gets(t testing.TB, what, token, code string) {
	t.Helper()
	self, err := w.login(t, token)
	if code == "" && (err != nil || self.Kind != "kubernetes" || self.Principal.Type != "xauth") || code != "" && !client.IsCode(err, code) {
		t.Errorf("%s: got %+v, %v; want %q", what, self.Principal, err, code)
	}
}

const badCredentials, unavailable = "INVALID_CREDENTIALS", "IDENTITY_PROVIDER_UNAVAILABLE"

// With the cluster's keys in a file that the manager updates.
func TestKeysInAFile(t *testing.T) {
	web := account(t, "file-web")
	w := newWorld(t, web, server.Providers{OIDCIssuer: cluster.issuer, OIDCAudiences: []string{audience}, OIDCKeysFile: keysFile(t)})
	account(t, "file-stranger")
	w.gets(t, "another service's token", token(t, "file-web", "https://other.example"), badCredentials)
	w.gets(t, "a token for the cluster itself", token(t, "file-web"), badCredentials)
	w.gets(t, "a service account that is no principal", token(t, "file-stranger", audience), badCredentials)
	w.gets(t, "a good token", token(t, "file-web", audience), "")
	w.gets(t, "a good token of two audiences", token(t, "file-web", "https://other.example", audience), "")
}

// By TokenReview, with a service account that has no other right.
func TestTokenReview(t *testing.T) {
	web := account(t, "review-web")
	reviewer(t, "reviewer")
	providers := server.Providers{TokenReview: true, OIDCAudiences: []string{audience}, Kubeconfig: kubeconfig(t, "reviewer", cluster.config.Host)}
	w := newWorld(t, web, providers)
	account(t, "review-stranger")
	w.gets(t, "another service's token", token(t, "review-web", "https://other.example"), badCredentials)
	w.gets(t, "a token for the cluster itself", token(t, "review-web"), badCredentials)
	w.gets(t, "a service account that is no principal", token(t, "review-stranger", audience), badCredentials)
	good := token(t, "review-web", audience)
	w.gets(t, "a token with a broken signature", good[:len(good)-8]+"AAAAAAAA", badCredentials)
	w.gets(t, "a good token", good, "")
	w.gets(t, "a good token of two audiences", token(t, "review-web", "https://other.example", audience), "")

	// Unlike a check by keys alone, TokenReview detects that the account is deleted.
	rig.Must(t, cluster.kube.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "review-web", metav1.DeleteOptions{}))
	rig.Succeeds(t, func() error {
		if _, err := w.login(t, good); !client.IsCode(err, badCredentials) {
			return fmt.Errorf("the token of a deleted service account: %w", err)
		}
		return nil
	})

	// The service account is a principal of both servers.
	db := account(t, "review-db")
	right, wrong := providers, providers
	right.OIDCIssuer, wrong.OIDCIssuer = cluster.issuer, "https://other.example"
	newWorld(t, db, right).gets(t, "the issuer that serve was told", token(t, "review-db", audience), "")
	newWorld(t, db, wrong).gets(t, "another issuer than serve was told", token(t, "review-db", audience), badCredentials)
}

// If the reviewer has no right or no connection, the error does not say that the token is invalid.
func TestTokenReviewUnavailable(t *testing.T) {
	web := account(t, "unavailable-web")
	account(t, "powerless")
	for name, config := range map[string]string{
		"NotAllowed": kubeconfig(t, "powerless", cluster.config.Host), "NobodyThere": kubeconfig(t, "powerless", "https://127.0.0.1:1"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, web, server.Providers{TokenReview: true, OIDCIssuer: cluster.issuer, OIDCAudiences: []string{audience}, Kubeconfig: config})
			w.gets(t, "a good token", token(t, "unavailable-web", audience), unavailable)
			w.gets(t, "a token that is plainly for another", token(t, "unavailable-web"), badCredentials)
		})
	}
}

// An agent logs in with the token of the cluster, and with the next token after the file is replaced. A workload
// without a token calls the agent.
func TestAgent(t *testing.T) {
	first, second := account(t, "agent-web"), account(t, "agent-db")
	w := newWorld(t, first, server.Providers{OIDCIssuer: cluster.issuer, OIDCAudiences: []string{audience}, OIDCKeysFile: keysFile(t)})
	next, err := w.Admin(t).CreateXAuthPrincipal(t.Context(), schema.CreateXAuthPrincipalRequest{
		Name: second, Issuer: cluster.issuer, Subject: second, RoleIDs: []schema.HexID{},
	})
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(w.file, []byte(token(t, "agent-web", "https://other.example")), 0o600))
	a, err := agent.Start(t.Context(), agent.Config{
		Server: w.URL(), CAFile: w.CAFile(), TokenFile: w.file, Listen: "127.0.0.1:0", SocketMode: agent.DefaultSocketMode,
		MaxRequests: agent.DefaultMaxRequests, Batch: agent.BatchOn, Logger: slog.New(slog.DiscardHandler), Clock: time.Now,
	})
	rig.Must(t, err)
	defer func() { rig.Must(t, a.Shutdown(context.WithoutCancel(t.Context()))) }()
	asks := func() (code, name string) {
		resp, err := http.Get("http://" + a.Address() + "/api/sessions/current")
		rig.Must(t, err)
		defer resp.Body.Close()
		var said struct {
			Code, Detail string
			Principal    struct{ Name string }
		}
		rig.Must(t, json.NewDecoder(resp.Body).Decode(&said))
		return said.Code, said.Principal.Name
	}
	if code, _ := asks(); code != "AGENT_LOGIN_FAILED" {
		t.Errorf("another service's token: %s", code)
	}
	rig.Must(t, os.WriteFile(w.file, []byte(token(t, "agent-web", audience)), 0o600))
	rig.Soon(t, "it acts as the service account", func() bool { _, name := asks(); return name == first })
	rig.Must(t, os.WriteFile(w.file, []byte(token(t, "agent-db", audience)), 0o600))
	if _, name := asks(); name != first {
		t.Errorf("the session that there is was given up: %q", name)
	}
	page, err := w.Admin(t).ListPrincipals(t.Context(), schema.PrincipalQuery{Type: "xauth"})
	rig.Must(t, err)
	for _, p := range page.Principals {
		if p.ID != next.Principal.ID {
			_, err := w.Admin(t).EndSessionsOfPrincipal(t.Context(), schema.ByID{ID: p.ID})
			rig.Must(t, err)
		}
	}
	if _, name := asks(); name != second {
		t.Errorf("with another token it acts as %q", name)
	}
}
