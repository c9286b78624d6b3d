package crash

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// newCertificates are CAs that a client trusts and stops trusting.
func newCertificates(t *testing.T, name string, n int) []rig.CA {
	t.Helper()
	list := make([]rig.CA, n)
	for i := range list {
		list[i] = rig.NewCA(t, fmt.Sprintf("%s %d", name, i))
	}
	return list
}

func fingerprintOf(row schema.TrustedCA) string {
	if row.CertHash == nil {
		return "without a hash"
	}
	return hex.EncodeToString(*row.CertHash)
}
