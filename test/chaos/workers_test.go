package chaos

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// worker is one client. It changes objects of its own only, so that what it was
// answered is what must be there, and in one step it speaks to one process.
type worker struct {
	*site
	kind    string
	do      step
	client  *client.Client
	at      *member
	n       int
	cas     []rig.CA
	links   []schema.HiddenLink
	members []*client.Client // by process
}

// step is a piece of work. Its error is a finding, unless it says that there was no
// answer, or that nobody knows yet what an object is.
type step func(w *worker, ctx context.Context, r *rand.Rand) error

// kinds are the pieces of work there are.
var kinds = []struct {
	name string
	do   step
}{
	{"keys", (*worker).keys}, {"roles", (*worker).roles}, {"principals", (*worker).principals}, {"sessions", (*worker).sessions},
	{"templates", (*worker).templates}, {"trusted CAs", (*worker).trustedCAs}, {"principal trusts", (*worker).principalTrusts},
	{"HMACs", (*worker).uses}, {"refusals", (*worker).refusals}, {"forwarded", (*worker).forwarded},
}

func (s *site) workers(t *testing.T) (all []*worker) {
	t.Helper()
	for i, kind := range kinds {
		w := &worker{site: s, kind: kind.name, do: kind.do}
		for at := range s.members {
			if kind.name == "refusals" {
				w.members = append(w.members, program.Client(t, s.members[at].over, "stranger", userPassword, program.Never))
			} else {
				w.members = append(w.members, s.client(t, at, program.Never))
			}
		}
		if kind.name == "trusted CAs" {
			for n := range 6 {
				w.cas = append(w.cas, rig.NewCA(t, fmt.Sprintf("%s %d %d", s.name, i, n)))
			}
		}
		all = append(all, w)
	}
	return all
}

// pause is how long a worker rests between two steps: the machine has more to do.
const pause = 15 * time.Millisecond

// work goes on until it is over. What is wrong is told.
func (w *worker) work(ctx context.Context, r *rand.Rand, over *atomic.Bool, tell func(error)) {
	for !over.Load() && ctx.Err() == nil {
		err := w.do(w, ctx, r)
		switch {
		case err == nil, errors.Is(err, errUnsettled), client.IsUnavailable(err):
		case ctx.Err() != nil:
			return
		default:
			tell(fmt.Errorf("%s at %s: %w", w.kind, w.at.name, err))
			return
		}
		time.Sleep(pause/2 + upTo(r, pause))
	}
}

// changes is one change of an object.
func (w *worker) change(ctx context.Context, name, value, operation string, ask func(context.Context) error) error {
	return w.ledger.change(ctx, name, value, operation, ask)
}

func (w *worker) keys(ctx context.Context, r *rand.Rand) error {
	in := schema.MintKeyRequest{Algorithm: "HMAC-SHA384"}
	var material []byte
	if r.IntN(2) == 0 {
		material = fmt.Appendf(nil, "material %x", r.Uint64())
		in.Material = (*schema.Base64)(&material)
	}
	made, err := w.client.MintKey(as(ctx, "createKey"), in)
	if err != nil {
		return err
	}
	w.ledger.note("key "+made.TTag.String(), "there")
	if err := w.macs.compute(ctx, w.client, made.TTag, material, "of a new key"); err != nil {
		return err
	}
	entry := "entry on " + made.TTag.String()
	for _, rights := range []schema.Rights{1, 2}[:r.IntN(3)] {
		err := w.change(ctx, entry, fmt.Sprint(uint32(rights|1)), "amendACL", func(ctx context.Context) error {
			_, err := w.client.GrantACL(ctx, schema.ACLChangeRequest{TTag: made.TTag, SystemID: w.system, PrincipalID: w.stranger.PrincipalID, Rights: rights})
			return err
		})
		if err != nil {
			return err
		}
	}
	if w.ledger.value(entry) == "" || r.IntN(2) == 0 {
		return nil
	}
	return w.change(ctx, entry, "", "amendACL", func(ctx context.Context) error {
		_, err := w.client.RevokeACL(ctx, schema.ACLRevokeRequest{TTag: made.TTag, SystemID: w.system, PrincipalID: w.stranger.PrincipalID})
		return err
	})
}

var someOperations = []schema.HexID{{6: 1, 7: 1}, {6: 1, 7: 0x21}, {6: 2, 7: 1}, {6: 3, 7: 4}, {6: 4, 7: 1}}

// mine begins the names of what workers make: the manager makes others.
const mine = "of a worker "

func (w *worker) roles(ctx context.Context, r *rand.Rand) error {
	w.n++
	name := mine + itoa(w.n)
	var id schema.HexID
	set := someOperations[:r.IntN(len(someOperations))]
	err := w.change(ctx, "role "+name, roleValue(set), "createRole", func(ctx context.Context) error {
		saved, err := w.client.CreateRole(ctx, schema.CreateRoleRequest{Name: name, Operations: set})
		id = saved.ID
		return err
	})
	if err != nil {
		return err
	}
	for range r.IntN(3) {
		set := someOperations[r.IntN(len(someOperations)):]
		err := w.change(ctx, "role "+name, roleValue(set), "updateRole", func(ctx context.Context) error {
			_, err := w.client.UpdateRole(ctx, schema.UpdateRoleRequest{ID: id, Operations: set})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(3) == 0 {
		return nil
	}
	return w.change(ctx, "role "+name, "", "deleteRole", func(ctx context.Context) error {
		_, err := w.client.DeleteRole(ctx, schema.ByID{ID: id})
		return err
	})
}

func roleValue(operations []schema.HexID) string { return "may " + idsOf(operations) }

func idsOf(ids []schema.HexID) string {
	sorted := make([]string, len(ids))
	for i, id := range ids {
		sorted[i] = id.String()
	}
	slices.Sort(sorted)
	return "[" + strings.Join(sorted, " ") + "]"
}

func (w *worker) principals(ctx context.Context, r *rand.Rand) error {
	w.n++
	time.Sleep(3 * pause) // a password is hashed, which costs
	made, err := w.client.CreatePasswordPrincipal(as(ctx, "createPrincipal"), schema.CreatePasswordPrincipalRequest{Name: mine + itoa(w.n), Password: userPassword})
	if err != nil {
		return err
	}
	id := made.Principal.ID
	name := "principal " + id.String()
	w.ledger.note(name, idsOf(nil))
	for _, roles := range [][]schema.HexID{{exchanger}, {exchanger, {7: 3}}, nil}[r.IntN(2):] {
		err := w.change(ctx, name, idsOf(roles), "updatePrincipalRoles", func(ctx context.Context) error {
			_, err := w.client.UpdatePrincipalRoles(ctx, schema.UpdatePrincipalRolesRequest{ID: id, RoleIDs: append([]schema.HexID{}, roles...)})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(2) == 0 {
		return nil
	}
	return w.change(ctx, name, "", "deletePrincipal", func(ctx context.Context) error {
		_, err := w.client.DeletePrincipal(ctx, schema.DeletePrincipalRequest{ID: id})
		return err
	})
}

func (w *worker) sessions(ctx context.Context, r *rand.Rand) error {
	time.Sleep(3 * pause) // a password is hashed, which costs
	token, err := w.login(ctx, w.at)
	if err != nil {
		return err
	}
	name := "session " + token
	w.ledger.note(name, "live")
	live, err := w.live(ctx, w.at, token)
	if err == nil && !live {
		err = errors.New("a session that was opened is not known")
	}
	if err != nil || r.IntN(2) == 0 {
		return err
	}
	if err := w.change(ctx, name, "", "logout", func(ctx context.Context) error { return w.logout(ctx, w.at, token) }); err != nil {
		return err
	}
	live, err = w.live(ctx, w.at, token)
	if err == nil && live {
		err = errors.New("a session that was ended goes on")
	}
	return err
}

func (w *worker) templates(ctx context.Context, r *rand.Rand) error {
	w.n++
	name := mine + itoa(w.n)
	object := "template " + name
	var made schema.ACLTemplateSaved
	// Who makes one is its first member.
	err := w.change(ctx, object, "without the user", "createACLTemplate", func(ctx context.Context) (err error) {
		made, err = w.client.CreateACLTemplate(ctx, schema.ACLTemplateRequest{Name: name})
		return err
	})
	if err != nil {
		return err
	}
	for range 1 + r.IntN(3) {
		to, operation := "without the user", "changeACLTemplateMembers"
		if w.ledger.value(object) == to {
			to = "with the user"
		}
		err := w.change(ctx, object, to, operation, func(ctx context.Context) error {
			if to == "with the user" {
				in := schema.SetACLTemplateMemberRequest{ID: made.ID}
				in.SystemID, in.PrincipalID, in.Rights = w.system, w.user.PrincipalID, 1
				_, err := w.client.SetACLTemplateMember(ctx, in)
				return err
			}
			_, err := w.client.RemoveACLTemplateMember(ctx, schema.RemoveACLTemplateMemberRequest{ID: made.ID, SystemID: w.system, PrincipalID: w.user.PrincipalID})
			return err
		})
		if err != nil {
			return err
		}
	}
	if r.IntN(3) == 0 {
		return nil
	}
	return w.change(ctx, object, "", "deleteACLTemplate", func(ctx context.Context) error {
		_, err := w.client.DeleteACLTemplate(ctx, schema.ByID{ID: made.ID})
		return err
	})
}

func (w *worker) trustedCAs(ctx context.Context, r *rand.Rand) error {
	one := w.cas[r.IntN(len(w.cas))]
	name := "CA " + one.Fingerprint
	if !w.ledger.settled(name) {
		return errUnsettled
	}
	if w.ledger.value(name) == "" {
		return w.change(ctx, name, "trusted", "addTrustedCA", func(ctx context.Context) error {
			_, err := w.client.AddTrustedCA(ctx, schema.AddTrustedCARequest{Certificate: one.DER})
			return err
		})
	}
	list, err := w.client.ListTrustedCAs(as(ctx, "listTrustedCAs"), schema.TrustedCAsQuery{})
	if err != nil {
		return err
	}
	for _, row := range list.TrustedCAs {
		if fingerprintOf(row) == one.Fingerprint {
			return w.change(ctx, name, "", "removeTrustedCA", func(ctx context.Context) error {
				_, err := w.client.RemoveTrustedCA(ctx, schema.RemoveTrustedCARequest{CertificateID: *row.CertificateID})
				return err
			})
		}
	}
	return fmt.Errorf("%s was acknowledged and is not listed", name)
}

func fingerprintOf(row schema.TrustedCA) string {
	if row.CertHash == nil {
		return "without a hash"
	}
	return hex.EncodeToString(*row.CertHash)
}

// principalTrusts makes, changes and deletes what a peer may know of the stranger.
func (w *worker) principalTrusts(ctx context.Context, r *rand.Rand) error {
	if w.trusted == 0 {
		return errUnsettled
	}
	principal := hexOf(w.stranger.PrincipalID)
	name := "principal trust " + principal.String()
	if w.ledger.value(name) != "" {
		if !w.ledger.settled(name) {
			return errUnsettled
		}
		peer := w.trusted
		list, err := w.client.ListPrincipalTrusts(as(ctx, "listPrincipalTrusts"), schema.PrincipalTrustsQuery{PrincipalID: &principal, TrustedServerSystemID: &peer})
		if err != nil {
			return err
		}
		if len(list.PrincipalTrusts) != 1 {
			return fmt.Errorf("%s was acknowledged, and %d are listed", name, len(list.PrincipalTrusts))
		}
		id := list.PrincipalTrusts[0].ID
		if r.IntN(2) == 0 {
			return w.change(ctx, name, "", "deletePrincipalTrust", func(ctx context.Context) error {
				_, err := w.client.DeletePrincipalTrust(ctx, schema.ByID{ID: id})
				return err
			})
		}
		flag := map[string]string{"restrict": "expose", "expose": "restrict"}[w.ledger.value(name)]
		return w.change(ctx, name, flag, "updatePrincipalTrust", func(ctx context.Context) error {
			_, err := w.client.UpdatePrincipalTrust(ctx, schema.UpdatePrincipalTrustRequest{ID: id, Flag: flag})
			return err
		})
	}
	return w.change(ctx, name, "restrict", "createPrincipalTrust", func(ctx context.Context) error {
		_, err := w.client.CreatePrincipalTrust(ctx, schema.CreatePrincipalTrustRequest{PrincipalID: principal, TrustedServerSystemID: w.trusted, Flag: "restrict"})
		return err
	})
}

// uses asks for HMACs under a few keys, again and again.
func (w *worker) uses(ctx context.Context, r *rand.Rand) error {
	if len(w.links) < 4 {
		made, err := w.client.MintKey(as(ctx, "createKey"), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
		if err != nil {
			return err
		}
		w.ledger.note("key "+made.TTag.String(), "there")
		w.links = append(w.links, made.TTag)
	}
	message := strings.Repeat(fmt.Sprintf("message %d ", r.IntN(16)), 1+r.IntN(2)*400)
	return w.macs.compute(ctx, w.client, w.links[r.IntN(len(w.links))], nil, message)
}

// refusals asks for what it may not: that has to be refused, and to change nothing.
func (w *worker) refusals(ctx context.Context, r *rand.Rand) error {
	name := mine + "without the right " + itoa(r.IntN(1000))
	var err error
	switch r.IntN(3) {
	case 0:
		_, err = w.client.CreateRole(as(ctx, "createRole"), schema.CreateRoleRequest{Name: name})
	case 1:
		_, err = w.client.MintKey(as(ctx, "createKey"), schema.MintKeyRequest{Algorithm: "HMAC-SHA384"})
	default:
		_, err = w.client.CreateACLTemplate(as(ctx, "createACLTemplate"), schema.ACLTemplateRequest{Name: name})
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

// login opens a session of the user, whose id the test gets to see.
func (s *site) login(ctx context.Context, at *member) (string, error) {
	status, answer, err := s.send(ctx, at, http.MethodPost, "/api/sessions", "", map[string]string{"method": "password", "name": "user", "password": userPassword})
	var opened struct{ SessionID string }
	switch {
	case err != nil:
		return "", err
	case status != http.StatusOK:
		return "", fmt.Errorf("a login is answered %d %s", status, answer)
	}
	err = json.Unmarshal(answer, &opened)
	return opened.SessionID, err
}

func (s *site) logout(ctx context.Context, at *member, token string) error {
	status, answer, err := s.send(ctx, at, http.MethodDelete, "/api/sessions/current", token, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a logout is answered %d %s", status, answer)
	}
	return err
}

func (s *site) live(ctx context.Context, at *member, token string) (bool, error) {
	status, answer, err := s.send(ctx, at, http.MethodGet, "/api/sessions/current", token, nil)
	if err == nil && status != http.StatusOK && status != http.StatusUnauthorized {
		err = fmt.Errorf("a session is answered %d %s", status, answer)
	}
	return status == http.StatusOK, err
}

// send is for what package client keeps to itself.
func (s *site) send(ctx context.Context, at *member, method, path, token string, body any) (int, []byte, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, program.BaseURL+path, content)
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: at.over, Timeout: rig.Patience}).Do(req)
	if err != nil {
		return 0, nil, &client.NetworkError{Sent: true, Err: err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, &client.NetworkError{Sent: true, Err: err}
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return resp.StatusCode, answer, &client.Error{Status: resp.StatusCode, Detail: string(answer)}
	}
	return resp.StatusCode, answer, nil
}

// each calls do for every item, a few at a time, and answers the first error.
func each[T any](items []T, do func(T) error) error {
	todo := make(chan T)
	errs := make(chan error, len(items))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for item := range todo {
				if err := do(item); err != nil {
					errs <- err
				}
			}
		})
	}
	for _, item := range items {
		todo <- item
	}
	close(todo)
	group.Wait()
	close(errs)
	return <-errs
}
