package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/ledger"
)

// worker is one client. It only changes its own objects, so that the responses determine their
// expected state. In one step it uses one process.
type worker struct {
	*site
	ledger.Worker
	kind    string
	do      step
	at      *member
	n       int
	members []*client.Client // by process
}

// step is a piece of work. Its error is a finding, unless it means that there was no response or that the state of an
// object is not known yet.
type step func(w *worker, ctx context.Context, r *rand.Rand) error

// kinds are the kinds of work.
var kinds = []struct {
	name string
	do   step
}{
	{"keys", (*worker).Keys}, {"roles", (*worker).Roles}, {"principals", (*worker).principals}, {"sessions", (*worker).sessions},
	{"templates", (*worker).templates}, {"trusted CAs", (*worker).TrustedCAs}, {"principal trusts", (*worker).principalTrusts},
	{"HMACs", (*worker).UseKeys}, {"refusals", (*worker).refusals}, {"forwarded", (*worker).forwarded},
}

func (s *site) workers(t *testing.T) (all []*worker) {
	t.Helper()
	for _, kind := range kinds {
		w := &worker{site: s, kind: kind.name, do: kind.do}
		w.Worker = ledger.Worker{Objects: &s.objects, MACs: &s.macs, Names: mine, System: s.system, Grantee: s.stranger.PrincipalID}
		for at := range s.members {
			if kind.name == "refusals" {
				w.members = append(w.members, program.Client(t, s.members[at].over, "stranger", userPassword, program.NoRetries))
			} else {
				w.members = append(w.members, s.client(t, at, program.NoRetries))
			}
		}
		if kind.name == "trusted CAs" {
			w.CAs = ledger.NewCAs(t, mine+s.name)
		}
		all = append(all, w)
	}
	return all
}

// pause is the time between two steps of a worker, so that the machine can do other work.
const pause = 15 * time.Millisecond

// work runs steps until over is set. It reports findings with tell.
func (w *worker) work(ctx context.Context, r *rand.Rand, over *atomic.Bool, tell func(error)) {
	for !over.Load() && ctx.Err() == nil {
		err := w.do(w, ctx, r)
		switch {
		case err == nil, errors.Is(err, ledger.ErrUnsettled), client.IsUnavailable(err):
		case ctx.Err() != nil:
			return
		default:
			tell(fmt.Errorf("%s at %s: %w", w.kind, w.at.name, err))
			return
		}
		time.Sleep(pause/2 + upTo(r, pause))
	}
}

// mine is the prefix of the names that workers use. The manager uses other names.
const mine = "of a worker "

func (w *worker) principals(ctx context.Context, r *rand.Rand) error {
	w.n++
	time.Sleep(3 * pause) // hashing a password is expensive
	made, err := w.Client.CreatePasswordPrincipal(ctx, schema.CreatePasswordPrincipalRequest{Name: mine + strconv.Itoa(w.n), Password: userPassword})
	if err != nil {
		return err
	}
	id := made.Principal.ID
	name := "principal " + id.String()
	w.Objects.Note(name, ledger.Principal(made.Principal.Name, nil))
	for _, roles := range [][]schema.HexID{{exchanger}, {exchanger, {7: 3}}, nil}[r.IntN(2):] {
		err := w.Objects.Change(ctx, name, ledger.Principal(made.Principal.Name, roles), func(ctx context.Context) error {
			_, err := w.Client.UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{ID: id, RoleIDs: append([]schema.HexID{}, roles...)})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(2) == 0 {
		return nil
	}
	return w.Objects.Change(ctx, name, "", func(ctx context.Context) error {
		_, err := w.Client.DeletePrincipal(ctx, schema.DeletePrincipalRequest{ID: id})
		return err
	})
}

func (w *worker) sessions(ctx context.Context, r *rand.Rand) error {
	time.Sleep(3 * pause) // hashing a password is expensive
	sessions := w.at.sessions()
	token, err := sessions.Open(ctx, "user", userPassword)
	if err != nil {
		return err
	}
	name := "session " + token
	w.Objects.Note(name, "live")
	live, err := sessions.Live(ctx, token)
	if err == nil && !live {
		err = errors.New("a session that was opened is not known")
	}
	if err != nil || r.IntN(2) == 0 {
		return err
	}
	if err := w.Objects.Change(ctx, name, "", func(ctx context.Context) error { return sessions.End(ctx, token) }); err != nil {
		return err
	}
	live, err = sessions.Live(ctx, token)
	if err == nil && live {
		err = errors.New("a session that was ended goes on")
	}
	return err
}

func (w *worker) templates(ctx context.Context, r *rand.Rand) error {
	w.n++
	name := mine + strconv.Itoa(w.n)
	object := "template " + name
	var made schema.ACLTemplateSaved
	// The creator of a template is its first member.
	err := w.Objects.Change(ctx, object, "without the user", func(ctx context.Context) (err error) {
		made, err = w.Client.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: name})
		return err
	})
	if err != nil {
		return err
	}
	for range 1 + r.IntN(3) {
		to := "without the user"
		if w.Objects.Value(object) == to {
			to = "with the user"
		}
		err := w.Objects.Change(ctx, object, to, func(ctx context.Context) error {
			if to == "with the user" {
				in := schema.SetACLTemplateMemberRequest{ID: made.ID}
				in.SystemID, in.PrincipalID, in.Rights = w.system, w.user.PrincipalID, 1
				_, err := w.Client.SetACLTemplateMember(ctx, in)
				return err
			}
			_, err := w.Client.RemoveACLTemplateMember(ctx, schema.RemoveACLTemplateMemberRequest{ID: made.ID, SystemID: w.system, PrincipalID: w.user.PrincipalID})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(3) == 0 {
		return nil
	}
	return w.Objects.Change(ctx, object, "", func(ctx context.Context) error {
		_, err := w.Client.DeleteACLTemplate(ctx, schema.ByID{ID: made.ID})
		return err
	})
}

// principalTrusts creates, changes and deletes the trust of the principal stranger for the peer.
func (w *worker) principalTrusts(ctx context.Context, r *rand.Rand) error {
	if w.trusted == 0 {
		return ledger.ErrUnsettled
	}
	principal := hexOf(w.stranger.PrincipalID)
	name := "trust of principal " + principal.String()
	if w.Objects.Value(name) != "" {
		if !w.Objects.Settled(name) {
			return ledger.ErrUnsettled
		}
		peer := w.trusted
		list, err := w.Client.ListPrincipalTrusts(ctx, schema.PrincipalTrustsQuery{PrincipalID: &principal, TrustedServerSystemID: &peer})
		if err != nil {
			return err
		}
		if len(list.PrincipalTrusts) != 1 {
			return fmt.Errorf("%s was acknowledged, and %d are listed", name, len(list.PrincipalTrusts))
		}
		id := list.PrincipalTrusts[0].ID
		if r.IntN(2) == 0 {
			return w.Objects.Change(ctx, name, "", func(ctx context.Context) error {
				_, err := w.Client.DeletePrincipalTrust(ctx, schema.ByID{ID: id})
				return err
			})
		}
		flag := map[string]string{"restrict": "expose", "expose": "restrict"}[w.Objects.Value(name)]
		return w.Objects.Change(ctx, name, flag, func(ctx context.Context) error {
			_, err := w.Client.UpdatePrincipalTrust(ctx, schema.UpdatePrincipalTrustRequest{ID: id, Flag: flag})
			return err
		})
	}
	return w.Objects.Change(ctx, name, "restrict", func(ctx context.Context) error {
		_, err := w.Client.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{PrincipalID: principal, TrustedServerSystemID: w.trusted, Flag: "restrict"})
		return err
	})
}

// refusals sends forbidden requests. The server has to reject them, and they must change nothing.
func (w *worker) refusals(ctx context.Context, r *rand.Rand) error {
	name := mine + "without the right " + strconv.Itoa(r.IntN(1000))
	var err error
	switch r.IntN(3) {
	case 0:
		_, err = w.Client.CreateRole(ctx, schema.CreateRoleRequest{Name: name})
	case 1:
		_, err = w.Client.MintKey(ctx, schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	default:
		_, err = w.Client.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: name})
	}
	var e *client.Error
	switch {
	case err == nil:
		return errors.New("somebody without a role was let")
	case errors.As(err, &e) && e.Status == http.StatusForbidden:
		return nil
	default:
		return err
	}
}

// sessions returns the sessions at a process.
func (m *member) sessions() ledger.Sessions {
	return ledger.Sessions{BaseURL: program.BaseURL, HTTPClient: &http.Client{Transport: m.over}, MaxRetries: program.NoRetries, Timeout: rig.Patience}
}
