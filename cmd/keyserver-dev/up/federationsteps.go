package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/bootstrap"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// printFederationSteps prints the URLs of the key servers, and commands to try. It prints no secret: the commands read
// the passwords from their files.
func (o *options) printFederationSteps(ctx context.Context, out io.Writer, servers []namedServer, cluster target) error {
	east, west := servers[0], servers[1]
	link, err := o.remembered(func() (string, error) { return sharedKey(ctx, west, east) })
	if err != nil {
		return fmt.Errorf("create a demo key: %w", err)
	}
	kubectl := "kubectl"
	if o.kubeconfig == "" {
		kubectl = filepath.Join(o.assets, "kubectl")
	}
	fmt.Fprintln(out)
	for _, s := range servers {
		fmt.Fprintf(out, "%-6s system id %d, %s/api (CA certificate: %s; password of %s in %s)\n",
			s.name, s.SystemID(), s.URL(), s.CAFile(), bootstrap.AdminName, s.FirstPasswordFile())
	}
	_, err = fmt.Fprintf(out, `
Log in at east and at west:
  login() { curl -s --cacert "$2/ca.crt" "$1/api/sessions" -d "{\"method\":\"password\",\"name\":\"%[1]s\",\"password\":\"$(cat "$2/bootstrap-password")\"}" | sed -E 's/.*"sessionId":"([^"]+)".*/\1/'; }
  EAST=%[2]s; EASTCA=%[3]s; ATEAST=$(login $EAST %[4]s)
  WEST=%[5]s; WESTCA=%[6]s; ATWEST=$(login $WEST %[7]s)

1. Request an HMAC from east with a key that never leaves west:
  hmac() { curl -s --cacert "$EASTCA" -H "Authorization: Bearer $ATEAST" -H "X-Request-Id: $1" $EAST/api/crypto/hmac -d '{"hiddenLink":"%[8]s","data":"aGVsbG8="}'; }
  hmac try-1

2. Both audit logs have this request, with the same request id. Show the rows of west:
  curl -s --cacert "$WESTCA" -H "Authorization: Bearer $ATWEST" "$WEST/api/audit?operation=hmacData&limit=5"

3. Deny west to the administrator of east, request again, and allow it again:
  kc() { %[9]s --kubeconfig %[10]s "$@"; }
  kc patch principaltrust admin-of-east-at-west --type merge -p '{"spec":{"flag":"restrict"}}'
  until hmac try-2 | grep ACCESS_DENIED; do sleep 0.2; done
  kc patch principaltrust admin-of-east-at-west --type merge -p '{"spec":{"flag":"expose"}}'

4. Show the declared objects, and whether they are verified:
  kc get trust -A

Ctrl-C stops everything and keeps the state.
`, bootstrap.AdminName, east.URL(), shellWord(east.CAFile()), shellWord(filepath.Dir(east.CAFile())),
		west.URL(), shellWord(west.CAFile()), shellWord(filepath.Dir(west.CAFile())), link, shellWord(kubectl), shellWord(cluster.kubeconfig))
	return err
}

// sharedKey creates a key on the key server owner and gives the administrator of the key server guest READ access. It
// returns the key's hidden link.
func sharedKey(ctx context.Context, owner, guest namedServer) (link string, err error) {
	there, err := guest.connect()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, there.Logout(ctx)) }()
	session, err := there.GetCurrentSession(ctx)
	if err != nil {
		return "", err
	}
	here, err := owner.connect()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, here.Logout(ctx)) }()
	key, err := here.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	if err != nil {
		return "", err
	}
	_, err = here.GrantACL(ctx, schema.ACLChangeRequest{
		TTag: key.TTag, SystemID: session.Principal.SystemID, PrincipalID: session.Principal.PrincipalID, Rights: schema.Rights(keyserver.Read),
	})
	return key.TTag.String(), err
}

// connect returns a client that logs in as the administrator.
func (s namedServer) connect() (*client.Client, error) {
	roots, err := s.Roots()
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{
		BaseURL: s.URL(), RootCAs: roots,
		Credentials: client.PasswordCredentials(bootstrap.AdminName, func(context.Context) (string, error) { return s.FirstPassword() }),
	})
}
