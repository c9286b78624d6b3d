//go:build cluster

package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/markdown"
)

// agent runs the Pod of docs/workloads.md, "Use an agent instead of credential code". Then it removes, one at a time,
// the key server, the token and the agent process. The agent has to tolerate each loss.
func agent(t *testing.T, n *node) {
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1")
	n.document(t, "workloads.md", replace, "Give the namespace a grant", "Declare role, principal and key", "Use an agent instead of credential code")
	n.deleteNamespaceAtEnd(t, "payments")
	t.Cleanup(func() {
		if t.Failed() {
			out, err := n.try("", "kubectl", "-n", "payments", "logs", agentPod, "-c", "agent", "--tail=30")
			t.Logf("%s%v", out, err)
		}
	})
	n.shortLived(t)
	n.inOrder(t, []stage{
		{"what is refused", agentRefuses},
		{"the workload has nothing to log in with", agentAlone},
		{"the key server is killed", agentServerKilled},
		{"the Pod of the key server is deleted", agentServerReplaced},
		{"the key server is away", agentServerAway},
		{"the agent is killed", agentKilled},
		{"another token", agentTokenRotated},
	})
}

const (
	agentPod    = "signer-agent"
	shortPod    = "signer-short"
	tokenGoodOf = 10 * time.Minute // the minimum in Kubernetes
)

// shortLived creates the same Pod with a token of the shortest lifetime. A later step checks the
// rotation of the token.
func (n *node) shortLived(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(n.root, "docs", "workloads.md"))
	rig.Must(t, err)
	replace := strings.NewReplacer("curlimages/curl:8.17.0", "registry.example/workload:1", agentPod, shortPod,
		"expirationSeconds: 3600", fmt.Sprintf("expirationSeconds: %.0f", tokenGoodOf.Seconds()))
	for _, b := range markdown.Blocks(string(page)) {
		if b.Heading == "Use an agent instead of credential code" && strings.Contains(b.Text, "kind: Pod") {
			_, err := n.try("set -euo pipefail\n"+replace.Replace(b.Text), "bash")
			rig.Must(t, err)
			return
		}
	}
	t.Fatal("docs/workloads.md has no Pod with an agent")
}

// inWorkload runs a script in the container of the workload, next to the agent.
func (n *node) inWorkload(pod, script string) (string, error) {
	return n.try(script, "kubectl", "-n", "payments", "exec", "-i", pod, "-c", "signer", "--", "sh")
}

// callAgent returns the status and the fault code of a call.
func (n *node) callAgent(t *testing.T, pod, arguments string) string {
	t.Helper()
	out, err := n.inWorkload(pod, `curl --silent --show-error --write-out ' %{http_code}' --unix-socket /run/keyserver/agent.sock `+arguments)
	rig.Must(t, err)
	body, status := out[:strings.LastIndex(out, " ")], out[strings.LastIndex(out, " ")+1:]
	var said struct{ Code string }
	rig.Must(t, json.Unmarshal([]byte(body), &said))
	return strings.TrimSpace(status + " " + said.Code)
}

const (
	asJSON  = `--header 'Content-Type: application/json' `
	askMAC  = asJSON + `--data "{\"lineage\":\"$RECEIPTS\",\"data\":\"aGVsbG8=\"}" http://localhost/api/crypto/mac`
	another = asJSON + `--data '{"lineage":"AAAAAQECAwQFBgcI","data":"aGVsbG8="}' http://localhost/api/crypto/mac`
)

func agentRefuses(t *testing.T, n *node) {
	for arguments, want := range map[string]string{
		askMAC: "200", // a successful request, so that the failures below are significant
		`--header 'Authorization: Bearer of-somebody' ` + askMAC: "400 AGENT_CREDENTIAL_SENT",
		`--header 'Cookie: session=of-somebody' ` + askMAC:       "400 AGENT_CREDENTIAL_SENT",
		another:                          "403 AGENT_KEY_NOT_ALLOWED",
		"http://localhost/api/roles":     "403 AGENT_ROUTE_NOT_ALLOWED",
		"http://localhost/api/audit":     "403 AGENT_ROUTE_NOT_ALLOWED",
		"http://localhost/api/elsewhere": "404 NOT_FOUND",
		asJSON + `--data '{"method":"password"}' http://localhost/api/sessions`:                                "403 AGENT_ROUTE_NOT_ALLOWED",
		asJSON + `--data "{\"lineage\":\"$RECEIPTS\",\"data\":\"no base64\"}" http://localhost/api/crypto/mac`: "400 BAD_REQUEST",
	} {
		if got := n.callAgent(t, agentPod, arguments); got != want {
			t.Errorf("%s: %s; want %s", arguments, got, want)
		}
	}
}

// Only the agent has the token. Its session id is useless without the key, which only the agent has.
func agentAlone(t *testing.T, n *node) {
	out, err := n.inWorkload(agentPod, `set -e
		test ! -e /var/run/secrets && test ! -e /etc/receipts-key
		for file in /proc/[0-9]*/environ; do tr '\0' '\n' <"$file"; done 2>/dev/null || true`)
	rig.Must(t, err)
	if strings.Contains(out, "KEYSERVER_TOKEN_FILE") || !strings.Contains(out, "RECEIPTS") {
		t.Errorf("the workload sees processes of the agent: %s", out)
	}
	logged := n.kubectl(t, "-n", "payments", "logs", agentPod, "-c", "agent")
	if strings.Contains(logged, "eyJ") {
		t.Error("the agent's log has a token")
	}
}

// asksAgent sends requests to the agent without a pause. The returned function stops them and returns the results.
func (n *node) asksAgent(t *testing.T, pod, name string) func() seen {
	t.Helper()
	file := "/run/keyserver/" + name // the only directory that the workload can write to
	_, err := n.inWorkload(pod, fmt.Sprintf(
		`asks -agent /run/keyserver/agent.sock -lineage "$RECEIPTS" -until %[1]s.end >%[1]s.json 2>%[1]s.log </dev/null &`, file))
	rig.Must(t, err)
	return func() seen {
		t.Helper()
		var s seen
		rig.Succeeds(t, func() error {
			out, err := n.inWorkload(pod, fmt.Sprintf("echo end >%[1]s.end; cat %[1]s.log >&2; cat %[1]s.json", file))
			if err == nil {
				err = json.Unmarshal([]byte(out), &s)
			}
			return err
		})
		if s.Asked == 0 {
			t.Error("nothing was asked, so nothing was shown")
		}
		return s
	}
}

// only fails the test if a request failed for any other reason.
func only(t *testing.T, s seen, reasons ...string) {
	t.Helper()
	for _, why := range slices.Sorted(maps.Keys(s.Why)) {
		if !slices.Contains(reasons, why) {
			t.Errorf("%d of %d requests failed by %q", s.Why[why], s.Asked, why)
		}
	}
}

func agentServerKilled(t *testing.T, n *node) {
	end := n.asksAgent(t, agentPod, "killed")
	before := n.containerID(t, "api")
	n.kill(t, "api")
	n.awaitRestarted(t, "api", before)
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	s := end()
	logMeasurement(t, "kill -9 of the API, for a workload with an agent: %s", s)
	// Neither the agent nor the server repeats requests in flight. While there was no agent, no request was executed.
	only(t, s, "AGENT_NO_ANSWER", "AGENT_SERVER_UNAVAILABLE")
	if got := n.callAgent(t, agentPod, askMAC); got != "200" {
		t.Errorf("afterwards: %s", got)
	}
}

func agentServerReplaced(t *testing.T, n *node) {
	end := n.asksAgent(t, agentPod, "replaced")
	n.kubectl(t, "-n", namespace, "delete", "pod", "-l", "app.kubernetes.io/name=keyserver")
	n.awaitField(t, namespace, "deployment/keyserver", available, "True")
	n.awaitField(t, "default", "keyserver/default", ready, "True")
	s := end()
	logMeasurement(t, "the Pod of the key server deleted, for a workload with an agent: %s", s)
	only(t, s, "AGENT_NO_ANSWER", "AGENT_SERVER_UNAVAILABLE")
}

// The agent reports that the key server is unavailable. Its Pod is not restarted, because a restart would not help.
func agentServerAway(t *testing.T, n *node) {
	before := n.containerOf(t, "payments", agentPod, "agent")
	n.scaled(t, 0)
	if got := n.callAgent(t, agentPod, askMAC); got != "503 AGENT_SERVER_UNAVAILABLE" {
		t.Errorf("without a key server: %s", got)
	}
	if _, err := n.try("", "kubectl", "-n", "payments", "exec", agentPod, "-c", "agent", "--", "keyserver-agent", "agent", "--check"); err == nil {
		t.Error("without a key server the agent says that it is ready")
	}
	n.scaled(t, 1)
	began := time.Now()
	n.awaitField(t, namespace, "deployment/keyserver", available, "True")
	up := time.Since(began)
	rig.Soon(t, "a MAC is computed", func() bool { return n.callAgent(t, agentPod, askMAC) == "200" })
	logMeasurement(t, "a key server that was away is Available after %s, and computes for a workload with an agent after %s", seconds(up), seconds(time.Since(began)))
	if after := n.containerOf(t, "payments", agentPod, "agent"); after != before {
		t.Error("the agent was restarted meanwhile")
	}
}

// A new agent takes over the socket, and the workload keeps running.
func agentKilled(t *testing.T, n *node) {
	workload, before := n.containerOf(t, "payments", agentPod, "signer"), n.containerOf(t, "payments", agentPod, "agent")
	end := n.asksAgent(t, agentPod, "agent-killed")
	n.killContainer(t, "payments", agentPod, "agent")
	rig.Soon(t, "another agent runs", func() bool { return n.containerOf(t, "payments", agentPod, "agent") != before })
	n.kubectl(t, "-n", "payments", "wait", "--for=condition=Ready", "--timeout=2m", "pod/"+agentPod)
	rig.Soon(t, "a MAC is computed", func() bool { return n.callAgent(t, agentPod, askMAC) == "200" })
	s := end()
	logMeasurement(t, "kill -9 of the agent: %s", s)
	if s.Failed == s.Asked {
		t.Error("every request failed")
	}
	if n.containerOf(t, "payments", agentPod, "signer") != workload {
		t.Error("the workload was restarted with the agent")
	}
}

// tokenOf returns when the token in an agent's file was issued, and when it expires.
func (n *node) tokenOf(t *testing.T, pod string) (issued, ends time.Time) {
	t.Helper()
	uid := n.field(t, "payments", "pod/"+pod, "{.metadata.uid}")
	text := n.mustOnNode(t, "", "cat /var/lib/kubelet/pods/"+uid+"/volumes/kubernetes.io~projected/token/token")
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 3 {
		t.Fatal("kubelet has put no token there")
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	rig.Must(t, err)
	var said struct{ Iat, Exp int64 }
	rig.Must(t, json.Unmarshal(claims, &said))
	return time.Unix(said.Iat, 0), time.Unix(said.Exp, 0)
}

// The kubelet replaces the token, and the first token expires. Requests without a pause do not fail.
func agentTokenRotated(t *testing.T, n *node) {
	created, err := time.Parse(time.RFC3339, n.field(t, "payments", "pod/"+shortPod, "{.metadata.creationTimestamp}"))
	rig.Must(t, err)
	first := created.Add(tokenGoodOf + time.Minute) // all servers then reject the first token
	end := n.asksAgent(t, shortPod, "token")
	for time.Now().Before(first) {
		time.Sleep(time.Second)
	}
	issued, ends := n.tokenOf(t, shortPod)
	if !issued.After(created.Add(time.Minute)) || !ends.After(time.Now()) {
		t.Errorf("the token was issued at %s and ends at %s: kubelet has not replaced it", issued, ends)
	}
	s := end()
	logMeasurement(t, "the token was replaced after %s, and the first one has ended: %s", seconds(issued.Sub(created)), s)
	if s.Failed != 0 {
		t.Errorf("the token was replaced, and %s", s)
	}
}
