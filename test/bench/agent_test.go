package bench

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/rawhttp"
	"github.com/keyserver-operator/keyserver-operator/test/rig/tokens"
)

// BenchmarkAgent compares MACs through an agent, with and without batches, with MACs over direct connections, in one
// run: the rate, and the CPU time of the server and of the agent for each MAC.
func BenchmarkAgent(b *testing.B) {
	dir := b.TempDir()
	const subject = "system:serviceaccount:shop:web"
	issuer := tokens.NewIssuer(b, "https://cluster.example", "https://keys.example")
	binary, err := program.Build(false)
	rig.Must(b, err)
	b.Cleanup(func() { _ = binary.Remove() })
	s := startProcess(b, binary, "--oidc-issuer", issuer.URL, "--oidc-audience", issuer.Audience, "--oidc-jwks-file", issuer.KeysFile)
	s.call(b, "/api/principals/xauth", schema.CreateXAuthPrincipalRequest{
		Name: "web", Issuer: issuer.URL, Subject: subject, RoleIDs: []schema.HexID{schema.HexID(keyserver.RoleEncryptor)},
	}, new(struct{}))
	rig.Must(b, os.WriteFile(dir+"/token", []byte(issuer.Token(b, subject, time.Hour)), 0o600))

	text := base64.StdEncoding.EncodeToString(sizes[0].message())
	body := func(link string) []byte { return fmt.Appendf(nil, `{"lineage":%q,"data":%q}`, link, text) }
	agents := map[string]*agentProcess{}
	for _, batch := range []string{agent.BatchOn, agent.BatchOff} {
		agents[batch] = startAgent(b, s, "--token-file", dir+"/token", "--batch", batch, "--max-requests", "256")
	}
	var minted schema.KeyMetadata
	agents[agent.BatchOn].mint(b, &minted)

	const calls = 320 // of each connection, per variant
	for _, conns := range []int{1, 4, 16, 64} {
		b.Run(fmt.Sprintf("conns=%d", conns), func(b *testing.B) {
			variants := []*agentVariant{
				{name: "direct", target: newTarget(b, s.server.Address, s.server.PID(), conns, rawhttp.Exchange{Request: rawhttp.Post("/api/crypto/mac", s.token, body(s.link))})},
				{name: "agent", agent: agents[agent.BatchOn]},
				{name: "unbatched", agent: agents[agent.BatchOff]},
			}
			for _, w := range variants {
				if w.agent != nil {
					w.target = newTarget(b, w.agent.address, s.server.PID(), conns, rawhttp.Exchange{Request: rawhttp.Post("/api/crypto/mac", "", body(minted.TTag.String()))})
				}
				defer func() { _ = w.target.load.close() }() // the measurement is done
				w.target.took = w.target.took[:0]
			}
			for b.Loop() {
				for range parts {
					for _, w := range variants {
						before := w.agent.cpuTime(b)
						w.target.work(b, calls/parts*conns)
						w.cpu += w.agent.cpuTime(b) - before
					}
				}
			}
			direct := variants[0].target
			for _, w := range variants {
				cpu := float64(w.target.cpuPer()) / float64(direct.cpuPer())
				b.ReportMetric(cpu, w.name+"-cpu/direct")
				fmt.Printf("64B, %d connections, %s: %.0f MACs/s, %.2f of direct; per MAC, CPU of the server %s, %.2f of direct, and of the agent %s\n",
					conns, w.name, w.target.rate(), w.target.rate()/direct.rate(), w.target.cpuPer().Round(time.Microsecond), cpu,
					(w.cpu / time.Duration(len(w.target.took))).Round(time.Microsecond))
			}
		})
	}
}

// agentVariant is a way to compute MACs.
type agentVariant struct {
	name   string
	target *target
	agent  *agentProcess // nil: direct connections
	cpu    time.Duration // of the agent
}

// agentProcess is a running agent on loopback.
type agentProcess struct {
	*program.Process
	address string
}

var agentLine = regexp.MustCompile(`(?m)^listening: (\S+)$`)

func startAgent(b *testing.B, s *service, args ...string) *agentProcess {
	b.Helper()
	process, err := s.binary.Named("keyserver-agent").Start(append([]string{
		"agent", "--server", "https://" + s.server.Address, "--ca-file", filepath.Join(s.server.DataDir, "ca.crt"), "--listen", "127.0.0.1:0",
	}, args...)...)
	rig.Must(b, err)
	b.Cleanup(process.Kill)
	a := &agentProcess{Process: process}
	rig.Soon(b, "the agent listens", func() bool {
		select {
		case <-a.Exited():
			b.Fatalf("the agent ended: %s", a.Log())
		default:
		}
		m := agentLine.FindStringSubmatch(a.Log())
		if m != nil {
			a.address = rawhttp.PlainPrefix + m[1]
		}
		return m != nil
	})
	return a
}

// mint mints a key of the agent's principal.
func (a *agentProcess) mint(b *testing.B, out *schema.KeyMetadata) {
	b.Helper()
	c, err := rawhttp.Dial(a.address)
	rig.Must(b, err)
	defer c.Close()
	answer, err := c.Do(rawhttp.Exchange{Request: rawhttp.Post("/api/keys", "", []byte(`{"algorithm":"HMAC-SHA384"}`))})
	rig.Must(b, err)
	rig.Must(b, json.Unmarshal(answer, out))
}

func (a *agentProcess) cpuTime(b *testing.B) time.Duration {
	if a == nil {
		return 0
	}
	used, err := cpuOf(a.PID())
	rig.Must(b, err)
	return used
}
