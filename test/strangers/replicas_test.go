package strangers

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// replicas starts two processes on one database. Each sees the changes of the other within a second.
func replicas(t *testing.T, args ...string) (first, second *site) {
	t.Helper()
	args = append(args, "--database-url", migrated.Database(t), "--kek", program.KEK)
	first = start(t, args...)
	second = serve(t, args...)
	second.Administrator, second.user, second.link = first.Administrator, first.user, first.link
	return first, second
}

// refused waits until the server refuses requests of a session with this code.
func (s *site) refused(t *testing.T, session, code string) {
	t.Helper()
	rig.Soon(t, "the session's work is "+code, func() bool {
		return s.Send(t, session, "GET", "/api/sessions/current", nil).Code() == code
	})
}

func TestSessionsOfTwoProcesses(t *testing.T) {
	first, second := replicas(t)
	guest := first.User(t, "guest", keyserver.RoleEncryptor)
	admin := second.AsAdmin(t)

	another := second.LogIn(t, "guest", rig.Password)
	first.OK(t, another, "GET", "/api/sessions/current", nil)
	list := "/api/sessions?principalId=" + guest.ID
	for _, s := range []*site{first, second} {
		if open := s.OK(t, admin, "GET", list, nil).List(t, "sessions"); len(open) != 2 {
			t.Errorf("%d sessions are listed, want 2: %v", len(open), open)
		}
	}
	id := first.OK(t, another, "GET", "/api/sessions/current", nil).Text(t, "id")
	second.OK(t, admin, "DELETE", "/api/sessions/"+id, nil)
	first.refused(t, another, "SESSION_NOT_FOUND")
	first.OK(t, guest.Session, "GET", "/api/sessions/current", nil)

	flags := "/api/principals/" + guest.ID + "/flags"
	second.OK(t, admin, "PUT", flags, rig.Object{"disabled": true})
	first.refused(t, guest.Session, "PRINCIPAL_DISABLED")
	first.OK(t, admin, "PUT", flags, rig.Object{"disabled": false})
	for _, s := range []*site{first, second} {
		s.refused(t, guest.Session, "SESSION_NOT_FOUND")
	}

	third := first.LogIn(t, "guest", rig.Password)
	if n := rig.Number(second.OK(t, admin, "DELETE", "/api/principals/"+guest.ID+"/sessions", nil).Body["ended"]); n != "1" {
		t.Errorf("%s sessions were ended, want the one that is left", n)
	}
	first.refused(t, third, "SESSION_NOT_FOUND")
}

// TestGuessesAtTwoProcesses checks that password guesses at both processes count for the same limit.
func TestGuessesAtTwoProcesses(t *testing.T) {
	first, second := replicas(t)
	guess := rig.Object{"method": "password", "name": "honest", "password": "a wrong one"}
	begun := time.Now()
	looked := make(chan string, 120)
	var all sync.WaitGroup
	for _, s := range []*site{first, second} {
		for range 6 {
			all.Go(func() {
				for range 10 {
					looked <- s.Send(t, "", "POST", "/api/sessions", guess).Code()
				}
			})
		}
	}
	all.Wait()
	close(looked)
	codes := map[string]int{}
	for code := range looked {
		codes[code]++
	}
	t.Log(codes)
	most := 10 + int(time.Since(begun)/(6*time.Second)) + 1
	if n := codes["INVALID_CREDENTIALS"]; n == 0 || n > most {
		t.Errorf("%d guesses were looked at, of which there may be %d: %v", n, most, codes)
	}
	if codes["LOGIN_THROTTLED"] == 0 {
		t.Errorf("nothing was throttled: %v", codes)
	}
	for _, s := range []*site{first, second} {
		if a := s.Send(t, s.user.Session, "GET", "/api/sessions/current", nil); a.Status != http.StatusOK {
			t.Errorf("who has a session: %s", a.Brief())
		}
	}
}

// TestQuotasOfTwoProcesses checks that two processes on one database together allow exactly the quota if requests
// arrive at both at the same time.
func TestQuotasOfTwoProcesses(t *testing.T) {
	const derived, sessions, uses, callers = 3, 4, 30, 4
	first, second := replicas(t, "--max-derived-sessions", fmt.Sprint(derived), "--max-sessions-per-principal", fmt.Sprint(sessions))
	parent := first.User(t, "parent", keyserver.RoleEncryptor)
	first.User(t, "greedy")
	limited := first.User(t, "limited", keyserver.RoleEncryptor)
	entry := limited.Entry(first.link, "READ")
	entry["maxUsage"] = uses
	first.OK(t, first.user.Session, "POST", "/api/keys/acl/grant", entry)
	for name, c := range map[string]struct {
		request rig.Request
		granted int
		refused string
		between func(t *testing.T, s *site) // runs at both processes at the same time
	}{
		"derived sessions": {
			rig.Request{Session: parent.Session, Method: "POST", Path: "/api/sessions", Body: rig.Object{"method": "scoped", "objects": []string{first.link}}},
			derived, "SESSION_LIMIT", nil,
		},
		"sessions of a principal": { // it has one
			rig.Request{Method: "POST", Path: "/api/sessions", Body: rig.Object{"method": "password", "name": "greedy", "password": rig.Password}},
			sessions - 1, "SESSION_LIMIT", nil,
		},
		"uses of a key lineage while the key is rotated": {
			rig.Request{Session: limited.Session, Method: "POST", Path: "/api/crypto/mac", Body: rig.Object{"lineage": first.link, "data": "AAAA"}},
			uses, "ACL_DENIED", func(t *testing.T, s *site) {
				for range 3 {
					a := s.Send(t, s.user.Session, "POST", "/api/keys/rotate", rig.Object{"ttag": s.link})
					if a.Status >= http.StatusMultipleChoices && a.Code() != "KEY_STATE" { // the other one rotated it
						t.Error(a.Brief())
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			answers := make(chan rig.Answer, 2*callers*(2+uses/callers))
			var all sync.WaitGroup
			for _, s := range []*site{first, second} {
				if c.between != nil {
					all.Go(func() { c.between(t, s) })
				}
				for range callers {
					all.Go(func() {
						for range 2 + c.granted/callers {
							answers <- s.Do(t, c.request)
						}
					})
				}
			}
			all.Wait()
			close(answers)
			granted := 0
			for a := range answers {
				if a.Status < http.StatusMultipleChoices {
					granted++
				} else if a.Code() != c.refused {
					t.Error(a.Brief())
				}
			}
			if granted != c.granted {
				t.Errorf("%d requests were granted, want %d", granted, c.granted)
			}
		})
	}
}
