// Package install tests the installation. It builds the manifests under config, validates them against the schemas of a
// real kube-apiserver, applies them, and runs the processes that they describe.
//
// The cluster has no controllers, so the tests do their work. No scheduler creates Pods, so the tests create a Pod from
// each template. No controller aggregates ClusterRoles, so the tests check their labels and rules.
package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig/controlplane"
	"github.com/keyserver-operator/keyserver-operator/test/rig/need"
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
	if controlplane.Missing() {
		return need.Suite(controlplane.Programs, controlplane.Remedy)
	}
	var err error
	// As in real clusters, service accounts must exist, Pods get tokens unless they disable this, and RBAC authorizes
	// requests.
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
		err = errors.Join(likeACluster(), beforehand())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// likeACluster creates the object that kube-controller-manager would create.
func likeACluster() error {
	account := &corev1.ServiceAccount{}
	account.Name, account.Namespace = "default", "default"
	return client.IgnoreAlreadyExists(kube.Create(context.Background(), account))
}

// beforehand creates the objects that docs/install.md creates first.
func beforehand() error {
	at, claim := &corev1.Namespace{}, &corev1.PersistentVolumeClaim{}
	for _, first := range []struct {
		file string
		into client.Object
	}{{"namespace/namespace.yaml", at}, {"volume/volume_claim.yaml", claim}} {
		text, err := os.ReadFile(filepath.Join(configDir, first.file))
		if err != nil {
			return err
		}
		if err := yaml.UnmarshalStrict(text, first.into); err != nil {
			return err
		}
		if err := kube.Create(context.Background(), first.into); err != nil {
			return err
		}
	}
	return nil
}
