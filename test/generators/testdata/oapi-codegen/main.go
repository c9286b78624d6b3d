// Command oapi-codegen prints a MAC. It uses the client that oapi-codegen generates.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/keyserver-operator/keyserver-operator/test/thirdparty/generators/oapi"
)

func main() {
	ctx := context.Background()
	client, err := oapi.NewClientWithResponses(os.Getenv("KEYSERVER_URL"))
	if err != nil {
		log.Fatal(err)
	}
	name, password := os.Getenv("KEYSERVER_NAME"), os.Getenv("KEYSERVER_PASSWORD")
	session, err := client.LoginWithResponse(ctx, &oapi.LoginParams{}, oapi.LoginRequest{Method: oapi.LoginMethodPassword, Name: &name, Password: &password})
	if err != nil || session.JSON200 == nil {
		log.Fatal("login: ", err, session)
	}
	lineage, err := base64.StdEncoding.DecodeString(os.Getenv("KEYSERVER_LINEAGE"))
	if err != nil {
		log.Fatal(err)
	}
	authorize := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+session.JSON200.SessionId)
		return nil
	}
	mac, err := client.ComputeMacWithResponse(ctx, &oapi.ComputeMacParams{}, oapi.MACRequest{Lineage: lineage, Data: []byte("hello")}, authorize)
	if err != nil || mac.JSON200 == nil {
		log.Fatal("computeMac: ", err, mac)
	}
	fmt.Println(base64.StdEncoding.EncodeToString(mac.JSON200.Mac))
}
