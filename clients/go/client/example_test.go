package client_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// A Pod logs in with its service account token, computes a MAC under a key lineage and verifies it.
func Example() {
	keys, err := client.New(client.Options{
		BaseURL:     "https://keyserver.keyserver-operator.svc:8443",
		Credentials: client.KubernetesCredentials("/var/run/secrets/keyserver/token"),
	})
	if err != nil {
		log.Fatal(err)
	}
	var lineage schema.HiddenLink
	if err := lineage.UnmarshalText([]byte("AAAAAQECAwQFBgcI")); err != nil { // the ConfigMap that the Key publishes has it
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
