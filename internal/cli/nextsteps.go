package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
)

// printNextSteps shows where things are and three commands to try. No secret
// is printed: the commands read the password from its file.
func (o *upOptions) printNextSteps(ctx context.Context, out io.Writer, srv *server.Server, cluster upCluster, k *kube) error {
	link, err := o.demoKey(ctx, srv)
	if err != nil {
		return fmt.Errorf("make a key to try: %w", err)
	}
	kubectl := "kubectl"
	if o.kubeconfig == "" {
		kubectl = filepath.Join(o.assets, "kubectl")
	}
	fmt.Fprintf(out, `
API            %[1]s/api   (CA certificate: %[2]s)
Administrator  %[3]s, password in %[4]s
Cluster        export KUBECONFIG=%[5]s

Log in, then try:
  API=%[1]s/api; CA=%[2]s
  SESSION=$(curl -s --cacert $CA $API/sessions -d "{\"method\":\"password\",\"name\":\"%[3]s\",\"password\":\"$(cat %[4]s)\"}" | sed -E 's/.*"sessionId":"([^"]+)".*/\1/')

1. An HMAC under a key that never leaves the key server:
  curl -s --cacert $CA -H "Authorization: Bearer $SESSION" $API/crypto/hmac -d '{"hiddenLink":"%[6]s","data":"aGVsbG8="}'

2. What is declared, and whether it was verified:
  %[7]s --kubeconfig %[5]s get keyserver -A
`, srv.URL(), srv.CAFile(), engine.AdminName, srv.FirstPasswordFile(), cluster.kubeconfig, link, kubectl)
	if name := k.sampleOf("TrustedCA"); name != "" {
		fmt.Fprintf(out, `
3. Remove a CA behind the operator's back, and watch it come back:
  ID=$(%[1]s --kubeconfig %[2]s get trustedca %[3]s -o jsonpath='{.status.certificateId}')
  curl -s --cacert $CA -H "Authorization: Bearer $SESSION" $API/trusted-cas/remove -d "{\"certificateId\":\"$ID\"}"
  %[1]s --kubeconfig %[2]s get trustedca %[3]s -w
`, kubectl, cluster.kubeconfig, name)
	}
	_, err = fmt.Fprintln(out, "\nCtrl-C stops everything and keeps the state.")
	return err
}

func (k *kube) sampleOf(kind string) string {
	for _, u := range k.objects {
		if u.GetKind() == kind && u.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
			return u.GetName()
		}
	}
	return ""
}

// demoKey returns the hidden link of a key to try, which is minted through the
// API, as any workload would.
func (o *upOptions) demoKey(ctx context.Context, srv *server.Server) (string, error) {
	return o.remembered(func() (string, error) { return mintKey(ctx, upServer{keyServerName, srv}) })
}

// remembered answers the key that an earlier run made to try, or makes it.
func (o *upOptions) remembered(mint func() (string, error)) (string, error) {
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

func mintKey(ctx context.Context, s upServer) (string, error) {
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
