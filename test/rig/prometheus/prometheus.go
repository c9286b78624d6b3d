// Package prometheus runs Prometheus for tests. make provides the program for packages that import it (hack/needs.sh).
package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Server is a running Prometheus.
type Server struct{ url string }

// Start runs Prometheus until the test ends. It scrapes each job's address and evaluates
// the rules once a second.
func Start(t testing.TB, rules []byte, jobs map[string]string) *Server {
	t.Helper()
	program := rig.Tool(t, "Prometheus", "RIG_PROMETHEUS", "test/thirdparty/promtool/go.sum", "hack/prometheus.sh")

	type object = map[string]any
	var scraped []object
	for job, address := range jobs {
		scraped = append(scraped, object{"job_name": job, "static_configs": []object{{"targets": []string{address}}}})
	}
	dir := t.TempDir()
	config, err := yaml.Marshal(object{
		"global":         object{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"rules.yaml"},
		"scrape_configs": scraped,
	})
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), config, 0o600))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600))

	address, said := rig.FreeAddress(t, "127.0.0.1"), &rig.Output{}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = rig.EndWithTest(syscall.SIGKILL)
	rig.Must(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the error shows that it was killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it fails only for a process that has ended
		<-ended
	})
	s := &Server{"http://" + address}
	rig.Succeeds(t, func() error {
		select {
		case <-ended:
			t.Fatalf("Prometheus has ended:\n%s", said)
		default:
		}
		return s.ask("/-/ready", nil)
	})
	return s
}

// Alert is a pending or firing alert.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
}

// Firing returns the firing alerts with this name.
func (s *Server) Firing(name string) ([]Alert, error) {
	var said struct {
		Data struct {
			Alerts []Alert `json:"alerts"`
		} `json:"data"`
	}
	if err := s.ask("/api/v1/alerts", &said); err != nil {
		return nil, err
	}
	var found []Alert
	for _, a := range said.Data.Alerts {
		if a.Labels["alertname"] == name && a.State == "firing" {
			found = append(found, a)
		}
	}
	return found, nil
}

// Healthy returns an error if a job is not scraped or a rule cannot be evaluated.
func (s *Server) Healthy() error {
	var targets struct {
		Data struct {
			ActiveTargets []struct{ Health, LastError, ScrapePool string }
		}
	}
	if err := s.ask("/api/v1/targets?state=active", &targets); err != nil {
		return err
	}
	for _, one := range targets.Data.ActiveTargets {
		if one.Health != "up" {
			return fmt.Errorf("the job %s is %s: %s", one.ScrapePool, one.Health, one.LastError)
		}
	}
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := s.ask("/api/v1/rules", &rules); err != nil {
		return err
	}
	for _, group := range rules.Data.Groups {
		for _, rule := range group.Rules {
			if rule.Health != "ok" {
				return fmt.Errorf("the rule %s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
	return nil
}

// ask sends a query and decodes the response into into. If into is nil, it only checks the status.
func (s *Server) ask(path string, into any) error {
	answer, err := http.Get(s.url + path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
