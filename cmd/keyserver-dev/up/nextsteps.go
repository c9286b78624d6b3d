package up

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// printNextSteps prints URLs and paths, and three commands to try. It prints no secret: the commands read the password
// from its file.
func (o *options) printNextSteps(ctx context.Context, out io.Writer, srv *server.Server, cluster target, k *kube) error {
	link, err := o.demoKey(ctx, srv)
	if err != nil {
		return fmt.Errorf("create a demo key: %w", err)
	}
	kubectl := "kubectl"
	if o.kubeconfig == "" {
		kubectl = filepath.Join(o.assets, "kubectl")
	}
	fmt.Fprintf(out, `
API            %[1]s/api   (CA certificate: %[2]s)
Administrator  %[3]s, password in %[4]s
Cluster        export KUBECONFIG=%[7]s

Log in, then try:
  API=%[1]s/api; CA=%[8]s
  SESSION=$(curl -s --cacert "$CA" $API/sessions -d "{\"method\":\"password\",\"name\":\"%[3]s\",\"password\":\"$(cat %[9]s)\"}" | sed -E 's/.*"sessionId":"([^"]+)".*/\1/')

1. Compute an HMAC with a key that never leaves the key server:
  curl -s --cacert "$CA" -H "Authorization: Bearer $SESSION" $API/crypto/hmac -d '{"hiddenLink":"%[5]s","data":"aGVsbG8="}'

2. Show the declared objects, and whether they are verified:
  %[6]s --kubeconfig %[7]s get trust -A
`, srv.URL(), srv.CAFile(), bootstrap.AdminName, srv.FirstPasswordFile(), link, shellWord(kubectl),
		shellWord(cluster.kubeconfig), shellWord(srv.CAFile()), shellWord(srv.FirstPasswordFile()))
	if name := k.sampleOf("TrustedCA"); name != "" {
		fmt.Fprintf(out, `
3. Remove a CA without the operator, and watch the operator add it again:
  ID=$(%[1]s --kubeconfig %[2]s get trustedca %[3]s -o jsonpath='{.status.certificateId}')
  curl -s --cacert "$CA" -H "Authorization: Bearer $SESSION" $API/trusted-cas/remove -d "{\"certificateId\":\"$ID\"}"
  %[1]s --kubeconfig %[2]s get trustedca %[3]s -w
`, shellWord(kubectl), shellWord(cluster.kubeconfig), name)
	}
	_, err = fmt.Fprintln(out, "\nCtrl-C stops everything and keeps the state.")
	return err
}

// plainWord matches text that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord returns s as one word of a shell command line.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (k *kube) sampleOf(kind string) string {
	for _, u := range k.objects {
		if u.GetKind() == kind && u.GroupVersionKind().Group == v1beta1.GroupVersion.Group {
			return u.GetName()
		}
	}
	return ""
}

// demoKey returns the hidden link of a demo key. It creates the key through the API, like any workload.
func (o *options) demoKey(ctx context.Context, srv *server.Server) (string, error) {
	return o.remembered(func() (string, error) { return mintKey(ctx, namedServer{keyServerName, srv}) })
}

// remembered returns the hidden link of the demo key that an earlier run created, or calls mint to create a key.
func (o *options) remembered(mint func() (string, error)) (string, error) {
	path := filepath.Join(o.dir, "demo-key")
	if link, err := os.ReadFile(path); err == nil {
		return strings.TrimSpace(string(link)), nil
	}
	link, err := mint()
	if err != nil {
		return "", err
	}
	return link, os.WriteFile(path, []byte(link+"\n"), 0o600)
}

func mintKey(ctx context.Context, s namedServer) (string, error) {
	c, err := s.connect()
	if err != nil {
		return "", err
	}
	key, err := c.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		return "", err
	}
	return key.TTag.String(), c.Logout(ctx)
}
