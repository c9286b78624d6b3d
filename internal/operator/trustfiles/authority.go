package trustfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
)

// AuthorityKey is the key of the ConfigMap that has the certificate.
const AuthorityKey = "ca.crt"

const fieldManager = "keyserver-operator-handover"

// Authority publishes the CA certificate of the key server in the same Pod in a ConfigMap. Workloads and the caBundle
// of a KeyServer use this ConfigMap.
type Authority struct {
	ConfigMaps corev1client.ConfigMapsGetter
	ConfigMap  types.NamespacedName // must exist: the manager has no permission to create it
	File       string               // PEM file, written by serve --ca-file
	Interval   time.Duration
	Logger     *slog.Logger
}

// Start implements manager.Runnable.
func (a Authority) Start(ctx context.Context) error {
	loop{what: "publish the key server's CA certificate", each: a.Interval, logger: a.Logger, step: a.Publish}.run(ctx)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. It returns false, because File belongs to this Pod.
func (a Authority) NeedLeaderElection() bool { return false }

// Publish updates the ConfigMap once.
func (a Authority) Publish(ctx context.Context) error {
	content, err := readBounded(a.File)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s does not exist yet: the key server writes it when it starts", a.File)
	}
	if err != nil {
		return err
	}
	if bytes.Contains(content, []byte("PRIVATE KEY")) {
		return fmt.Errorf("%s contains a private key and is not published; name the file of the CA certificate", a.File)
	}
	if _, err := certtext.Certificates(content); err != nil {
		return fmt.Errorf("%s %w", a.File, err)
	}
	have, err := a.ConfigMaps.ConfigMaps(a.ConfigMap.Namespace).Get(ctx, a.ConfigMap.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("ConfigMap %s does not exist: apply the manifests of the installation again", a.ConfigMap)
	case err != nil:
		return fmt.Errorf("read ConfigMap %s: %w", a.ConfigMap, err)
	case have.Data[AuthorityKey] == string(content):
		return nil
	}
	return a.write(ctx, have, string(content))
}

// write sets one key of the ConfigMap and leaves its other keys unchanged. The UID prevents write from creating the
// ConfigMap again if it was deleted in the meantime.
func (a Authority) write(ctx context.Context, have *corev1.ConfigMap, content string) error {
	want := applycorev1.ConfigMap(a.ConfigMap.Name, a.ConfigMap.Namespace).
		WithUID(have.UID).WithData(map[string]string{AuthorityKey: content})
	_, err := a.ConfigMaps.ConfigMaps(a.ConfigMap.Namespace).Apply(ctx, want, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", a.ConfigMap, err)
	}
	a.Logger.Info("published the key server's CA certificate", "configMap", a.ConfigMap.String(), "replaced", have.Data[AuthorityKey] != "")
	return nil
}
