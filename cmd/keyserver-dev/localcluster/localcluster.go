// Package localcluster runs etcd and kube-apiserver on this machine for "keyserver-dev up". The state of etcd is kept,
// so a later run continues where an earlier run ended.
package localcluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

const (
	// startTimeout bounds the start of etcd, and that of kube-apiserver.
	startTimeout = 90 * time.Second
	loopback     = "127.0.0.1"
	// user has full rights, because it belongs to group and kube-apiserver grants group full rights.
	user, group = "local-admin", "system:masters"
)

// Issuer is the issuer of service account tokens. It is the same in every run, so that principals of an earlier
// run stay valid.
const Issuer = "https://kubernetes.default.svc.cluster.local"

// Cluster is a running control plane.
type Cluster struct {
	Config     *rest.Config
	Kubeconfig string // path of a kubeconfig with full rights, mode 0600

	etcd, apiserver *process
}

// Options configure the control plane.
type Options struct {
	Assets string // directory with etcd, kube-apiserver and kubectl
	Dir    string // directory of the state; created if it does not exist
	Log    io.Writer
}

// Start runs the control plane and returns when kube-apiserver responds. If an earlier run was killed, Start first
// kills the programs of that run that still use the directory.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(o.Assets, name)); err != nil {
			return nil, fmt.Errorf("%s is not in the directory %q; run \"make run\", which provides it, or set --assets or KUBEBUILDER_ASSETS", name, o.Assets)
		}
	}
	etcdDir, certDir := filepath.Join(o.Dir, "etcd"), filepath.Join(o.Dir, "apiserver")
	if err := endLeftovers(etcdDir, certDir); err != nil {
		return nil, err
	}
	// Each start creates new credentials. Credentials of earlier runs are invalid.
	if err := os.RemoveAll(certDir); err != nil {
		return nil, err
	}
	for _, dir := range []string{etcdDir, certDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	c := &Cluster{Kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
	if err := c.start(ctx, o, etcdDir, certDir); err != nil {
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options, etcdDir, certDir string) error {
	keys, err := newKeyPair(certDir)
	if err != nil {
		return err
	}
	etcdURL, err := c.startEtcd(ctx, o, keys, etcdDir)
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	token, err := c.admit(address, keys, certDir)
	if err != nil {
		return err
	}
	return c.startAPIServer(ctx, o, keys, etcdURL, address, certDir, token)
}

func (c *Cluster) startEtcd(ctx context.Context, o Options, keys keyPair, dir string) (string, error) {
	address, err := freeAddress()
	if err != nil {
		return "", err
	}
	url := "https://" + address
	c.etcd, err = startProcess(ctx, o.Log, filepath.Join(o.Assets, "etcd"),
		"--data-dir="+dir, "--listen-client-urls="+url, "--advertise-client-urls="+url,
		// Any client of etcd can read every Secret, so only kube-apiserver has access.
		"--client-cert-auth", "--trusted-ca-file="+keys.ca, "--cert-file="+keys.certificate, "--key-file="+keys.key,
		// etcd is a cluster of one member, without peers.
		"--listen-peer-urls=https://"+net.JoinHostPort(loopback, "0"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file="+keys.ca, "--peer-cert-file="+keys.certificate, "--peer-key-file="+keys.key,
		"--unsafe-no-fsync") // a development cluster need not wait for the disk
	if err != nil {
		return "", err
	}
	asUs := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: keys.roots, Certificates: []tls.Certificate{keys.pair}}}}
	defer asUs.CloseIdleConnections()
	return url, c.etcd.await(ctx, asUs, url+"/health")
}

// admit writes the signing key of service account tokens, the token of a user with full rights, and a kubeconfig for
// this user.
func (c *Cluster) admit(address string, keys keyPair, dir string) (tokenFile string, err error) {
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return "", fmt.Errorf("create a key for service accounts: %w", err)
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	token := hex.EncodeToString(secret)
	tokenFile = filepath.Join(dir, "tokens.csv")
	for path, content := range map[string][]byte{
		filepath.Join(dir, "accounts.key"): accounts,
		tokenFile:                          fmt.Appendf(nil, "%s,%s,%s,%s\n", token, user, user, group),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return "", err
		}
	}
	kubeconfig := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"local": {Server: "https://" + address, CertificateAuthorityData: keys.caPEM}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"local": {Cluster: "local", AuthInfo: user}},
		CurrentContext: "local",
	}
	// WriteToFile would keep the mode of an existing file.
	if err := os.Remove(c.Kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if err := clientcmd.WriteToFile(kubeconfig, c.Kubeconfig); err != nil {
		return "", fmt.Errorf("write a kubeconfig: %w", err)
	}
	c.Config, err = clientcmd.NewDefaultClientConfig(kubeconfig, nil).ClientConfig()
	return tokenFile, err
}

func (c *Cluster) startAPIServer(ctx context.Context, o Options, keys keyPair, etcdURL, address, dir, tokens string) (err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	accounts := filepath.Join(dir, "accounts.key")
	c.apiserver, err = startProcess(ctx, o.Log, filepath.Join(o.Assets, "kube-apiserver"),
		"--etcd-servers="+etcdURL, "--etcd-cafile="+keys.ca, "--etcd-certfile="+keys.certificate, "--etcd-keyfile="+keys.key, "--cert-dir="+dir, "--bind-address="+host, "--secure-port="+port,
		"--tls-cert-file="+keys.certificate, "--tls-private-key-file="+keys.key,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer="+Issuer, "--service-account-key-file="+accounts, "--service-account-signing-key-file="+accounts,
		"--service-cluster-ip-range=10.0.0.0/24",
		// No controller creates the service account "default" of a namespace.
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	asUser, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	return c.apiserver.await(ctx, asUser, c.Config.Host+"/readyz")
}

// Ended returns a channel that receives one error if one of the programs ends.
func (c *Cluster) Ended() <-chan error {
	ended := make(chan error, 1)
	go func() { // ends at Stop, at the latest
		select {
		case <-c.etcd.exited:
			ended <- fmt.Errorf("etcd stopped: %w", c.etcd.ended())
		case <-c.apiserver.exited:
			ended <- fmt.Errorf("kube-apiserver stopped: %w", c.apiserver.ended())
		}
	}()
	return ended
}

// Stop ends the control plane and keeps its state. It ends kube-apiserver first, because kube-apiserver cannot stop
// cleanly without etcd.
func (c *Cluster) Stop() error { return errors.Join(c.apiserver.stop(), c.etcd.stop()) }

// freeAddress returns a free address of the loopback interface.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
