package client_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// A Pod logs in with its service account token, computes a MAC under a key lineage and verifies it. The ConfigMap that
// a Key publishes is mounted at /etc/receipts-key.
func Example() {
	published := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join("/etc/receipts-key", name))
		if err != nil {
			log.Fatal(err)
		}
		return bytes.TrimSpace(text)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(published("ca.crt"))
	keys, err := client.New(client.Options{
		BaseURL:     string(published("url")),
		RootCAs:     roots,
		Credentials: client.KubernetesCredentials("/var/run/secrets/keyserver/token"),
	})
	if err != nil {
		log.Fatal(err)
	}
	var lineage schema.HiddenLink
	if err := lineage.UnmarshalText(published("lineage")); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	made, err := keys.MAC(ctx, lineage, strings.NewReader("a message"))
	if err != nil {
		log.Fatal(err)
	}
	checked, err := keys.VerifyMAC(ctx, schema.VerifyMACRequest{Lineage: &lineage, MAC: made.MAC}, strings.NewReader("a message"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(checked.Valid)
}
