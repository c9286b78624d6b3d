package metrics

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/crypto/pki"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/testserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// measured is a key server with all optional parts, and the address of its metrics.
type measured struct {
	*testserver.Server
	at string
}

func start(t *testing.T, system uint32, options ...testserver.Option) measured {
	t.Helper()
	host := fmt.Sprintf("127.0.0.%d", system+1) // a key server cannot be a peer at its own address
	at, external := rig.FreeAddress(t, "127.0.0.1"), rig.FreeAddress(t, host)
	s := testserver.Start(t, append([]testserver.Option{func(c *server.Config) {
		c.MetricsListen, c.ExternalListen, c.SystemID = at, external, system
		c.ServerName = host
	}}, options...)...)
	return measured{s, at}
}

func (m measured) text(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.at+"/metrics", nil)
	rig.Must(t, err)
	resp, err := http.DefaultClient.Do(req)
	rig.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	rig.Must(t, err)
	return string(text)
}

func (m measured) families(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(m.text(t)))
	rig.Must(t, err)
	return all
}

// value adds the series of a metric that have these labels. For a histogram it adds the numbers of observations.
func (m measured) value(t *testing.T, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, one := range m.families(t)[name].GetMetric() {
		has := map[string]string{}
		for _, l := range one.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i+1 < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			sum += one.GetCounter().GetValue() + one.GetGauge().GetValue() + float64(one.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// everything starts a key server with all parts that have metrics.
func everything(t *testing.T) measured {
	t.Helper()
	recipient, err := age.GenerateX25519Identity()
	rig.Must(t, err)
	dir := t.TempDir()
	rig.Must(t, os.Mkdir(filepath.Join(dir, "archive"), 0o700))
	return start(t, 1, func(c *server.Config) {
		c.AuditSinks, c.Stdout = []string{"stdout:"}, io.Discard
		c.AuditArchive = "file://" + filepath.Join(dir, "archive")
		c.BackupEvery, c.BackupTo, c.BackupKeep, c.BackupRecipient = time.Hour, filepath.Join(dir, "backups"), 2, recipient.Recipient().String()
		c.ReplicateTo, c.ReplicateRecipient, c.ReplicateKeep = filepath.Join(dir, "replica"), recipient.Recipient().String(), time.Hour
	})
}

// TestMetricsAreDocumentedAndNamedWell checks that each metric of a key server has a row in
// docs/metrics.md with its type and labels, and a name that Prometheus' linter accepts.
func TestMetricsAreDocumentedAndNamedWell(t *testing.T) {
	m := everything(t)
	_, err := m.Admin(t).GetCurrentSession(t.Context())
	rig.Must(t, err)
	rig.Succeeds(t, func() error {
		if m.value(t, "keyserver_data_keys") == 0 {
			return fmt.Errorf("nothing yet")
		}
		return nil
	})
	problems, err := promlint.New(strings.NewReader(m.text(t))).Lint()
	rig.Must(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "keyserver_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	listed, seen := page(t), 0
	for name, family := range m.families(t) {
		if !strings.HasPrefix(name, "keyserver_") {
			continue
		}
		seen++
		d, ok := listed[name]
		if !ok {
			t.Errorf("docs/metrics.md has no row for %s", name)
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); kind != d.kind {
			t.Errorf("%s is a %s, and docs/metrics.md has it as a %s", name, kind, d.kind)
		}
		for _, one := range family.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if want := slices.Sorted(slices.Values(d.labels)); !slices.Equal(slices.Sorted(slices.Values(labels)), want) {
				t.Errorf("%s has the labels %q, and docs/metrics.md says %q", name, labels, want)
			}
		}
	}
	if seen < 40 {
		t.Errorf("%d metrics were seen, so little is shown", seen)
	}
}

// provoked is the expected change of a metric.
type provoked struct {
	metric string
	labels []string
	// least is the minimum value of the metric after the step.
	least float64
}

// TestMetricsSayWhatHappens changes the metrics of key servers by typical actions of users and workloads.
func TestMetricsSayWhatHappens(t *testing.T) {
	m, other := everything(t), start(t, 2)
	admin, there := m.Admin(t), other.Admin(t)
	key, err := admin.MintKey(t.Context(), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	rig.Must(t, err)
	ctx := t.Context()
	steps := []struct {
		reason string
		do     func() error
		want   []provoked
	}{
		{"a start", func() error { return nil }, []provoked{
			{"keyserver_build_info", nil, 1}, {"keyserver_limit", []string{"flag", "max-proofs"}, 500_000}, {"keyserver_limit", []string{"flag", "max-spool-bytes"}, 1 << 30},
			{"keyserver_audit_queue_max_rows", nil, 4096}, {"keyserver_volume_free_bytes", nil, 1}, {"keyserver_volume_size_bytes", nil, 1},
			{"keyserver_kek_beside_database", nil, 1}, {"keyserver_data_keys", []string{"state", "active"}, 1},
			{"keyserver_authority_not_after_seconds", []string{"state", "active"}, 1}, {"keyserver_server_certificate_not_after_seconds", nil, 1},
			{"keyserver_tls_certificate_not_after_seconds", nil, 1}, {"keyserver_database_connections_max", nil, 1},
			{"keyserver_backup_interval_seconds", nil, 3600}, {"keyserver_audit_first_row", nil, 1}, {"keyserver_audit_archive_works", nil, 1},
			{"keyserver_replication_log_bytes", nil, 1},
		}},
		{"a login, and a key", func() error { return nil }, []provoked{
			{"keyserver_logins_total", []string{"method", "password", "outcome", "OK"}, 1}, {"keyserver_sessions", []string{"kind", "password"}, 1},
			{"keyserver_keys", []string{"state", "enabled"}, 1}, {"keyserver_data_key_wrapped", []string{"state", "active"}, 1},
			{"keyserver_audit_rows_total", []string{"outcome", "allowed"}, 1}, {"keyserver_audit_commit_duration_seconds", nil, 1},
			{"keyserver_database_transaction_duration_seconds", []string{"outcome", "committed"}, 1},
			{"keyserver_audit_tree_grows", nil, 1}, {"keyserver_audit_tree_rows", nil, 1}, {"keyserver_audit_sink_sent_total", nil, 1}, {"keyserver_audit_archive_lag_rows", nil, 1},
			{"keyserver_connections", nil, 1}, {"keyserver_http_requests_total", []string{"code", "OK"}, 1}, {"keyserver_http_request_duration_seconds", nil, 1},
		}},
		{"a wrong password", func() error {
			_, err := m.Client(t, testserver.AdminName, "wrong").GetCurrentSession(ctx)
			return refused(err, "INVALID_CREDENTIALS")
		}, []provoked{
			{"keyserver_logins_total", []string{"method", "password", "outcome", "INVALID_CREDENTIALS"}, 1},
			{"keyserver_http_requests_total", []string{"code", "INVALID_CREDENTIALS"}, 1},
			{"keyserver_audit_rows_total", []string{"outcome", "refused"}, 1},
		}},
		{"a session bound to a key", func() error { return m.bound(t) }, []provoked{
			{"keyserver_proofs_total", []string{"outcome", "OK"}, 2}, {"keyserver_proofs_remembered", nil, 2},
		}},
		{"a client certificate of nobody", func() error { return m.stranger(t) }, []provoked{
			{"keyserver_tls_client_certificates_refused_total", []string{"reason", "untrusted"}, 1},
		}},
		{"a key that is disabled", func() error {
			_, err := admin.DisableKey(ctx, schema.KeyRequest{TTag: key.TTag})
			return err
		}, []provoked{{"keyserver_keys", []string{"state", "disabled"}, 1}}},
		{"another data key", func() error { _, err := admin.RotateDataKey(ctx); return err }, []provoked{
			{"keyserver_data_keys", []string{"state", "retired"}, 1},
		}},
		{"a peer", func() error {
			program.Trust(t, admin, there)
			program.Trust(t, there, admin)
			session, err := admin.GetCurrentSession(ctx)
			rig.Must(t, err)
			_, err = admin.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{PrincipalID: session.Principal.ID, TrustedServerSystemID: 2, Flag: "expose"})
			rig.Must(t, err)
			foreign, err := there.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
			if err == nil {
				_, err = admin.HMAC(ctx, foreign.TTag, strings.NewReader("text"))
				if err = notRefused(err); err != nil {
					return err
				}
			}
			return err
		}, []provoked{
			{"keyserver_peers", nil, 1}, {"keyserver_peer_calls_total", []string{"peer", "2", "method", "HMAC"}, 1},
			{"keyserver_peer_call_duration_seconds", []string{"peer", "2"}, 1},
		}},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.reason, err)
			continue
		}
		for _, want := range step.want {
			rig.Succeeds(t, func() error {
				if got := m.value(t, want.metric, want.labels...); got < want.least {
					return fmt.Errorf("%s: %s%q is %v, want at least %v", step.reason, want.metric, want.labels, got, want.least)
				}
				return nil
			})
		}
	}
	if got := other.value(t, "keyserver_peer_requests_total", "peer", "1", "method", "HMAC"); got < 1 {
		t.Errorf("the peer counted %v calls", got)
	}
	quiet := []string{ // did not happen in this test
		"keyserver_audit_commit_failures_total", "keyserver_audit_queue_rows", "keyserver_rewrap_refused", "keyserver_break_glass",
		"keyserver_database_went_back_total", "keyserver_backup_failures_total", "keyserver_audit_archived_rows_total",
		"keyserver_http_requests_at_work", "keyserver_http_waiting", "keyserver_logins_hashed", "keyserver_logins_waiting", "keyserver_replication_failures_total",
	}
	families := m.families(t)
	for _, name := range quiet {
		if families[name] == nil {
			t.Errorf("%s is not shown; metrics are %s", name, slices.Sorted(maps.Keys(families)))
		} else if got := m.value(t, name); got != 0 {
			t.Errorf("%s is %v although nothing of it happened", name, got)
		}
	}
}

// stranger connects with a certificate that no CA has issued. With TLS 1.3, the first read returns the refusal.
func (m measured) stranger(t *testing.T) error {
	t.Helper()
	ca, err := pki.NewCA("nobody", time.Now(), rand.Reader)
	rig.Must(t, err)
	own, err := ca.IssueServer("stranger", []string{"stranger"}, nil, time.Now(), rand.Reader)
	rig.Must(t, err)
	dialer := tls.Dialer{Config: &tls.Config{
		RootCAs: m.Pool(t), MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{own.Certificate.Raw}, PrivateKey: own.Key}},
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", m.Address())
	rig.Must(t, err)
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		return fmt.Errorf("somebody with a certificate of nobody is let in")
	}
	return nil
}

// bound logs in with a DPoP key and sends a request.
func (m measured) bound(t *testing.T) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{
		BaseURL: m.URL(), RootCAs: m.Pool(t), ProofKey: key,
		Credentials: client.PasswordCredentials(testserver.AdminName, func(context.Context) (string, error) { return testserver.AdminPassword, nil }),
	})
	if err == nil {
		_, err = c.GetCurrentSession(t.Context())
	}
	return err
}

// notRefused returns an error unless err is set: the ACL at the peer must deny the caller.
func notRefused(err error) error {
	if err == nil {
		return fmt.Errorf("a key of the peer is used by somebody who is not on its list")
	}
	return nil
}

func refused(err error, code string) error {
	if got := client.CodeOf(err); got != code {
		return fmt.Errorf("it answered %q (%w), want %s", got, err, code)
	}
	return nil
}
