// Command ogen-client prints a MAC. It uses the client that ogen generates.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/keyserver-operator/keyserver-operator/test/thirdparty/generators/ogen"
)

// session is the id of the session. A login sends the empty one, which is none.
type session string

func (s session) BearerSession(context.Context, ogen.OperationName) (ogen.BearerSession, error) {
	return ogen.BearerSession{Token: string(s)}, nil
}

func main() {
	ctx, url := context.Background(), os.Getenv("KEYSERVER_URL")
	anonymous, err := ogen.NewClient(url, session(""))
	if err != nil {
		log.Fatal(err)
	}
	login, err := anonymous.Login(ctx, &ogen.LoginRequest{
		Method: ogen.LoginMethodPassword, Name: ogen.NewOptString(os.Getenv("KEYSERVER_NAME")), Password: ogen.NewOptSecret(ogen.Secret(os.Getenv("KEYSERVER_PASSWORD"))),
	}, ogen.LoginParams{})
	if err != nil {
		log.Fatal("login: ", err)
	}
	opened, ok := login.(*ogen.LoginResponseHeaders)
	if !ok {
		log.Fatalf("login: %+v", login)
	}
	client, err := ogen.NewClient(url, session(opened.Response.SessionId))
	if err != nil {
		log.Fatal(err)
	}
	computed, err := client.ComputeMac(ctx, &ogen.MACRequest{Lineage: ogen.HiddenLink(os.Getenv("KEYSERVER_LINEAGE")), Data: "aGVsbG8="}, ogen.ComputeMacParams{})
	if err != nil {
		log.Fatal("computeMac: ", err)
	}
	mac, ok := computed.(*ogen.MACResponseHeaders)
	if !ok {
		log.Fatalf("computeMac: %+v", computed)
	}
	fmt.Println(mac.Response.MAC)
}
