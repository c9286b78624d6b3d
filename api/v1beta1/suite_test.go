package v1beta1_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

var (
	environment *envtest.Environment
	cluster     client.Client
)

func TestSchemas(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "schemas")
}

var _ = BeforeSuite(func() {
	var err error
	environment = controlplane.Start(GinkgoTB())
	cluster, err = client.New(environment.Config, client.Options{Scheme: controlplane.Scheme()})
	Expect(err).NotTo(HaveOccurred())
})
