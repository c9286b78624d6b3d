package keys_test

import (
	"context"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

var ctx = context.Background()

func text(s string) keyserver.Message { return strings.NewReader(s) }

func noMAC() (mac [keyserver.MACSize]byte) { return mac }
