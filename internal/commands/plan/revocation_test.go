package plan_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

func (p peer) crl(t testing.TB, number int64, thisUpdate time.Time) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: thisUpdate, NextUpdate: thisUpdate.Add(time.Hour)}
	return must[[]byte](t)(x509.CreateRevocationList(rand.Reader, list, p.ca.Certificate, p.ca.Key))
}

// TestRevocation checks that a plan shows the revocation policy and list to be set, and that an export plans no change.
// The export omits the list, because it would soon be outdated.
func TestRevocation(t *testing.T) {
	k, p, now := start(t), newPeer(t, 7), time.Now().Truncate(time.Second)
	must[schema.TrustedCAAdded](t)(k.admin.AddTrustedCA(t.Context(), schema.AddTrustedCARequest{Certificate: p.ca.Certificate.Raw}))
	text := string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: p.crl(t, 2, now)}))
	manifests := object("TrustedCA", "ca", fmt.Sprintf("{adoptionPolicy: Always, certificate: {inline: %q}, revocation: {mode: required, maxAge: 30m, crl: {configMapKeyRef: {name: lists, key: crl}}}}", p.pem())) +
		fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: lists, namespace: default}\ndata: {crl: %q}\n", text)
	o := find(t, k.mustPlan(t, manifests), "TrustedCA ca")
	var fields []string
	for _, d := range o.Fields {
		fields = append(fields, d.Field)
	}
	if want := []string{"revocation.mode", "revocation.maxAge", "revocation.crl"}; o.Action != reconcile.PlanUpdate || !slices.Equal(fields, want) {
		t.Errorf("planned %s of %v, want an update of %v", o.Action, fields, want)
	}

	digest := schema.IssuerDigest(pki.RevocationDigest(p.ca.Certificate.Raw))
	must[schema.RevocationPolicySaved](t)(k.admin.SetRevocationPolicy(t.Context(), schema.SetRevocationPolicyRequest{Digest: digest, Mode: "required", MaxAgeSeconds: 1800}))
	must[schema.CRLImported](t)(k.admin.ImportCRL(t.Context(), schema.ImportCRLRequest{CRL: p.crl(t, 2, now)}))
	exported, left := k.export(t, "TrustedCA")
	if !strings.Contains(exported, "mode: required") || !strings.Contains(exported, "maxAge: 30m0s") {
		t.Errorf("the policy is not exported:\n%s", exported)
	}
	if len(left) != 1 || left[0].Part != "its revocation list" || strings.Contains(exported, "crl") {
		t.Errorf("of the list is said: %v", left)
	}
	r := k.mustPlan(t, exported)
	if len(r.Objects) != 1 || r.Objects[0].Action != reconcile.PlanAdopt {
		t.Errorf("an export is planned as %+v", r.Objects)
	}
}
