//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// theDatabase is a PostgreSQL in a Pod, with a certificate of a test CA. Its files outlive its container.
const theDatabase = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: postgres, namespace: database}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: postgres}}
  template:
    metadata: {labels: {app: postgres}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532}
      containers:
        - name: postgres
          image: registry.example/postgres:1
          imagePullPolicy: Never
          command:
            - sh
            - -ec
            - |
              cp /tls/tls.* /run/postgres/ && chmod 600 /run/postgres/tls.key
              if ! test -e /data/postgres/PG_VERSION; then
                initdb -D /data/postgres -U postgres --pwfile=/password/password -A scram-sha-256 --encoding=UTF8
                echo "hostssl all all 0.0.0.0/0 scram-sha-256" >>/data/postgres/pg_hba.conf
              fi
              exec postgres -D /data/postgres -c listen_addresses='*' -c unix_socket_directories=/run/postgres \
                -c ssl=on -c ssl_cert_file=/run/postgres/tls.crt -c ssl_key_file=/run/postgres/tls.key
          ports: [{containerPort: 5432}]
          readinessProbe: {exec: {command: [pg_isready, -h, 127.0.0.1]}, periodSeconds: 1}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: run, mountPath: /run/postgres}
            - {name: tls, mountPath: /tls, readOnly: true}
            - {name: password, mountPath: /password, readOnly: true}
      volumes:
        - {name: data, emptyDir: {}}
        - {name: run, emptyDir: {}}
        - {name: tls, secret: {secretName: postgres-tls}}
        - {name: password, secret: {secretName: postgres}}
---
apiVersion: v1
kind: Service
metadata: {name: postgres, namespace: database}
spec:
  selector: {app: postgres}
  ports: [{port: 5432}]
`

// certify creates DIRECTORY/{ca.crt,tls.crt,tls.key} for a host name.
const certify = `set -euo pipefail
mkdir -p "$1" && cd "$1"
new=(openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
"${new[@]}" -x509 -days 30 -subj "/CN=CA of $2" -keyout ca.key -out ca.crt
"${new[@]}" -subj "/CN=$2" -keyout tls.key -out tls.csr
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out tls.crt -extfile <(echo "subjectAltName=DNS:$2")
chmod 600 tls.key ca.key`

// withDatabase starts a PostgreSQL and makes the prerequisites of docs/install.md: its URL in
// DATABASE_URL, and a certificate for the key server in the directory where commands run.
func withDatabase(t *testing.T, n *node) {
	n.deleteLeftNamespaces(t, "database")
	password := rand.Text()
	rig.Must(t, os.WriteFile(filepath.Join(n.work, "password"), []byte(password), 0o600))
	for directory, host := range map[string]string{"postgres": "postgres.database.svc", ".": "keyserver.keyserver-system.svc"} {
		n.run(t, "bash", "-c", certify, "certify", directory, host)
	}
	n.kubectl(t, "create", "namespace", "database")
	n.kubectl(t, "-n", "database", "create", "secret", "generic", "postgres", "--from-file=password=password")
	n.kubectl(t, "-n", "database", "create", "secret", "tls", "postgres-tls", "--cert=postgres/tls.crt", "--key=postgres/tls.key")
	n.apply(t, "", theDatabase)
	n.kubectl(t, "-n", "database", "rollout", "status", "deployment/postgres", "--timeout=2m")
	t.Setenv("DATABASE_URL", "postgres://postgres:"+password+"@postgres.database.svc/postgres?sslmode=verify-full&sslrootcert=/run/keyserver/database/ca.crt")
}

// deleteLeftNamespaces deletes namespaces that an earlier test has left.
func (n *node) deleteLeftNamespaces(t *testing.T, namespaces ...string) {
	t.Helper()
	n.kubectl(t, append([]string{"delete", "namespace", "--ignore-not-found", "--timeout=3m"}, namespaces...)...)
}

// accepts returns a channel that receives the time when PostgreSQL accepts connections again after it refused some. It
// connects through the Service, like the key server.
func (n *node) accepts(t *testing.T) <-chan time.Time {
	t.Helper()
	address := n.field(t, "database", "service/postgres", "{.spec.clusterIP}")
	config, err := pgx.ParseConfig(strings.NewReplacer("@postgres.database.svc", "@"+address, "verify-full", "verify-ca",
		"/run/keyserver/database/ca.crt", filepath.Join(n.work, "postgres", "ca.crt")).Replace(os.Getenv("DATABASE_URL")))
	rig.Must(t, err)
	config.ConnectTimeout = time.Second
	again := make(chan time.Time, 1)
	answers := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		connection, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return false
		}
		defer func() { _ = connection.Close(ctx) }()
		_, err = connection.Exec(ctx, "SELECT 1")
		return err == nil
	}
	if !answers() {
		t.Fatal("PostgreSQL does not answer before anything is broken")
	}
	go func() {
		refused := false
		for end := time.Now().Add(rig.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			switch is := answers(); {
			case is && refused:
				again <- time.Now()
				return
			case !is:
				refused = true
			}
		}
		close(again)
	}()
	return again
}
