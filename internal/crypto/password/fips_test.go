package password_test

import (
	"testing"

	"github.com/keyserver-operator/keyserver-operator/test/fips"
)

func TestUnderFIPS(t *testing.T) { fips.Again(t, "internal/crypto/password") }
