package server

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

const secret = "hunter2"

// public contains the settings whose value may be shown. The tests treat every other text in the configuration as
// secret, so a new setting is secret until it is added here.
var public = []string{"ServerName", "Deployment", "Listen", "ExternalListen", "MetricsListen", "TLSMinVersion", "RequireProof"}

// planted returns a configuration with a credential in every setting that can contain one.
func planted() Config {
	c := Config{
		ServerName: "keys", Deployment: "split", Listen: ":1", ExternalListen: ":2", MetricsListen: ":3", TLSMinVersion: TLS12,
		SessionIdle: time.Minute, SessionLifetime: time.Hour, RequireProof: "people",
	}
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Type.Kind() == reflect.String && !slices.Contains(public, f.Name) {
			v.Field(i).SetString("scheme://user:" + secret + "@host/" + secret + "?password=" + secret)
		}
	}
	return c
}

func walk(n keyserver.ConfigNode, visit func(keyserver.ConfigNode)) {
	visit(n)
	for _, c := range n.Children {
		walk(c, visit)
	}
}

// plant adds a credential to every section: as an attribute, as text and as a child.
func plant(n keyserver.ConfigNode) keyserver.ConfigNode {
	attrs := map[string]string{"password": secret, "token": secret, "url": secret}
	for name, value := range n.Attrs {
		attrs[name] = value
	}
	n.Attrs, n.Text = attrs, secret
	children := []keyserver.ConfigNode{{Tag: "Credentials", Attrs: map[string]string{"name": secret, "kind": secret}, Text: secret}}
	for _, c := range n.Children {
		children = append(children, plant(c))
	}
	n.Children = children
	return n
}

func TestNoCredentialOfTheConfigurationLeaves(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tree := settings(planted(), 7, listeners{l, l, l})
	held := false
	walk(tree, func(n keyserver.ConfigNode) {
		for _, v := range n.Attrs {
			held = held || strings.Contains(v, secret)
		}
	})
	if !held {
		t.Error("the tree holds no credential, so this shows nothing")
	}
	for name, root := range map[string]keyserver.ConfigNode{"settings": tree, "planted": plant(tree)} {
		paths := []string{keyserver.ConfigRoot}
		walk(root, func(n keyserver.ConfigNode) {
			paths = append(paths, n.Tag, "Listeners."+n.Tag, "Listeners.Listener[@name=api]."+n.Tag)
		})
		for _, text := range paths {
			path, ok := keyserver.ParseConfigPath(text)
			if !ok {
				t.Fatalf("%q is refused", text)
			}
			p, _ := keyserver.ProjectConfig(root, path)
			if out := fmt.Sprintf("%+v", p); strings.Contains(out, secret) {
				t.Errorf("%s: %q lets a credential out: %s", name, text, out)
			}
		}
	}
}

// TestSettings checks that every section can be read and contains the current settings.
func TestSettings(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := planted()
	c.KEK, c.DatabaseURL, c.TLSCert, c.ExternalURL = "", "", "", "https://keys.example.com:8443"
	cases := map[string]struct {
		reason string
		config Config
		path   string
		want   map[string]string
	}{
		"KeyServer": {"who it is", c, "KeyServer", map[string]string{
			"systemId": "7", "serverName": "keys", "deployment": "split", "breakGlass": "off", "externalUrl": "https://keys.example.com:8443",
		}},
		"Origin":     {"a URL without its credentials", planted(), "KeyServer", map[string]string{"systemId": "7", "serverName": "keys", "deployment": "split", "breakGlass": "off", "externalUrl": "scheme://host"}},
		"SQLite":     {"the default", c, "Database", map[string]string{"kind": "sqlite"}},
		"PostgreSQL": {"the kind, not where", planted(), "Database", map[string]string{"kind": "postgresql"}},
		"FileKey":    {"the default", c, "KeyEncryptionKey", map[string]string{"scheme": "file"}},
		"OtherKey":   {"the kind, not the key", planted(), "KeyEncryptionKey", map[string]string{"scheme": "scheme"}},
		"OwnCA":      {"the default", c, "Certificate", map[string]string{"source": "internal CA"}},
		"File":       {"not which", planted(), "Certificate", map[string]string{"source": "file"}},
		"Sessions": {"in seconds", c, "Sessions", map[string]string{
			"idleSeconds": "60", "lifetimeSeconds": "3600", "scopedLifetimeSeconds": "0", "most": "0", "mostPerPrincipal": "0", "mostDerived": "0", "mostRequests": "0", "requireProof": "people",
		}},
		"Listener": {"one by its name", c, "Listeners.Listener[@name=external]", map[string]string{
			"name": "external", "address": l.Addr().String(), "tls": "true", "minVersion": "1.3", "clientCertificates": "required",
		}},
		"API": {"who may come without a certificate", c, "Listeners.Listener[@name=api]", map[string]string{
			"name": "api", "address": l.Addr().String(), "tls": "true", "minVersion": "1.2", "clientCertificates": "optional",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path, ok := keyserver.ParseConfigPath(tc.path)
			p, found := keyserver.ProjectConfig(settings(tc.config, 7, listeners{api: l, external: l}), path)
			if !ok || !found || len(p.Nodes) != 1 || !reflect.DeepEqual(p.Nodes[0].Attrs, tc.want) {
				t.Errorf("%s: got %+v, want %v", tc.reason, p, tc.want)
			}
		})
	}
}
