package install

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	cnpgv1 "github.com/cloudnative-pg/api/pkg/api/v1"

	postgresdb "github.com/keyserver-operator/keyserver-operator/internal/store/postgres"
)

// The key server uses the objects that CloudNativePG creates for the Cluster in the manifests. The Cluster is
// configured to lose no data in a failover.
func TestTheDatabaseThatFailsOver(t *testing.T) {
	objects := build(t, postgresHA)
	clusters := typed[cnpgv1.Cluster](t, objects, "Cluster")
	if len(clusters) != 1 {
		t.Fatalf("%d clusters", len(clusters))
	}
	c := clusters[0]
	s := c.Spec.PostgresConfiguration.Synchronous
	if c.Spec.Instances < 3 || s == nil || s.Number < 1 || s.DataDurability != "required" {
		t.Errorf("%d instances, synchronous: %+v", c.Spec.Instances, s)
	}
	most, err := strconv.Atoi(c.Spec.PostgresConfiguration.Parameters["max_connections"])
	if least := 11 * postgresdb.DefaultConnections; err != nil || most < least {
		t.Errorf("max_connections is %d, %v; the replicas of an update take %d", most, err, least)
	}
	if c.Namespace != "keyserver-system" {
		t.Errorf("it is in %q", c.Namespace)
	}

	api := containers(t, objects)["api"]
	values, from := map[string]string{}, map[string]string{}
	var order []string
	for _, e := range api.Env {
		order = append(order, e.Name)
		values[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			from[e.Name] = e.ValueFrom.SecretKeyRef.Name + " " + e.ValueFrom.SecretKeyRef.Key
		}
	}
	const user, password, database = "DATABASE_USER", "DATABASE_PASSWORD", "KEYSERVER_DATABASE_URL"
	own := c.Name + cnpgv1.ApplicationUserSecretSuffix
	if from[user] != own+" username" || from[password] != own+" password" || from[database] != "" {
		t.Errorf("they come from %v", from)
	}
	// In Kubernetes, a variable can only refer to earlier variables.
	if at := slices.Index(order, database); at < slices.Index(order, user) || at < slices.Index(order, password) {
		t.Errorf("the order is %q", order)
	}
	u, err := url.Parse(strings.NewReplacer("$("+user+")", "user", "$("+password+")", "password").Replace(values[database]))
	if err != nil {
		t.Fatal(err)
	}
	if u.Hostname() != c.Name+cnpgv1.ServiceReadWriteSuffix || u.Path != "/"+c.Spec.Bootstrap.InitDB.Database ||
		u.Query().Get("sslmode") != "verify-full" || u.Query().Get("target_session_attrs") != "read-write" {
		t.Errorf("the URL is %s", u.Redacted())
	}
	deployment := pick(t, objects, "Deployment", "keyserver-api")
	text, err := deployment.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	mounted := ""
	for _, m := range api.VolumeMounts {
		if strings.HasPrefix(u.Query().Get("sslrootcert"), m.MountPath+"/") {
			mounted = m.Name
		}
	}
	if mounted != "database-ca" || !strings.Contains(string(text), `"secretName":"`+c.Name+cnpgv1.DefaultServerCaSecretSuffix+`"`) {
		t.Errorf("the CA of %s is not mounted: %+v", u.Query().Get("sslrootcert"), api.VolumeMounts)
	}
}
