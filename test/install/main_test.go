// Package install proves the installation: the manifests under config are
// built, validated against the schemas of a real kube-apiserver, applied to it,
// and run as the processes that they describe.
//
// What a single kube-apiserver cannot do is done by hand: nothing schedules a
// Pod, so one is made from each template to be admitted; nothing aggregates
// ClusterRoles, so their labels and rules are looked at.
package install

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
)

const namespace = "keyserver-system"

var (
	environment *envtest.Environment
	restConfig  *rest.Config
	apiServer   *url.URL
	kube        client.Client
)

func TestMain(m *testing.M) {
	if about, inside := os.LookupEnv(containerVariable); inside {
		fmt.Fprintln(os.Stderr, "enter the container:", enterContainer(about))
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	// As clusters have it: service accounts must exist, tokens are mounted
	// unless that is declined, and RBAC decides.
	environment, err = controlplane.Begin(func(e *envtest.Environment) {
		e.ControlPlane.GetAPIServer().Configure().Set("disable-admission-plugins", "").Set("authorization-mode", "RBAC")
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the control plane:", err)
		return 1
	}
	restConfig = environment.Config
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		}
	}()
	restConfig.QPS = -1
	if apiServer, err = url.Parse(restConfig.Host); err == nil && apiServer.Host == "" {
		apiServer, err = url.Parse("https://" + restConfig.Host)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if scratch, err = os.MkdirTemp("", "keyserver-image-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(scratch); err != nil {
			fmt.Fprintln(os.Stderr, "remove the image:", err)
		}
	}()
	if kube, err = client.New(restConfig, client.Options{Scheme: controlplane.Scheme(apiextensionsv1.AddToScheme)}); err == nil {
		err = likeACluster()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// likeACluster makes what kube-controller-manager would have made.
func likeACluster() error {
	account := &corev1.ServiceAccount{}
	account.Name, account.Namespace = "default", "default"
	return client.IgnoreAlreadyExists(kube.Create(context.Background(), account))
}
