package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/keyserver-operator/keyserver-operator/httpapi/client"
	"github.com/keyserver-operator/keyserver-operator/httpapi/schema"
	"github.com/keyserver-operator/keyserver-operator/test/program"
)

// observe reads the state of the named objects, and of everything that there
// is a list of, whether or not a client ever asked for it.
func (w *world) observe(ctx context.Context, names []string) (map[string]string, error) {
	var mu sync.Mutex
	now := map[string]string{}
	put := func(name, value string) {
		mu.Lock()
		defer mu.Unlock()
		now[name] = value
	}
	roles, err := w.admin.ListRoles(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range roles.Roles {
		if r.BuiltIn == nil || !*r.BuiltIn {
			put("role "+r.Name, roleValue(r.Operations))
		}
	}
	list, err := w.admin.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	if err != nil {
		return nil, err
	}
	for _, ca := range list.TrustedCAs {
		put("CA "+fingerprintOf(ca), "trusted")
	}
	err = each(names, func(name string) error {
		switch kind, id, _ := strings.Cut(name, " "); kind {
		case "key":
			return w.observeKey(ctx, id, put)
		case "principal":
			principal, err := schema.ParseHexID(id)
			if err != nil {
				return err
			}
			p, err := w.admin.GetPrincipal(ctx, schema.ByID{ID: principal})
			if client.IsCode(err, "NOT_FOUND") {
				return nil
			}
			put(name, p.Name)
			return err
		case "session":
			live, err := w.live(ctx, id)
			if live {
				put(name, "live")
			}
			return err
		}
		return nil
	})
	return now, err
}

func (w *world) observeKey(ctx context.Context, id string, put func(name, value string)) error {
	var link schema.HiddenLink
	if err := link.UnmarshalText([]byte(id)); err != nil {
		return err
	}
	got, err := w.admin.GetACL(ctx, schema.KeyRequest{TTag: link})
	if client.IsCode(err, "ACL_NOT_FOUND") {
		return nil
	}
	if err != nil {
		return err
	}
	put("key "+id, "there")
	for _, e := range got.ACL.Entries {
		if e.PrincipalID == w.other {
			put("entry on "+id, fmt.Sprint(uint32(e.Rights)))
		}
	}
	return nil
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

// login opens a session whose id the test gets to see.
func (w *world) login(ctx context.Context, name, password string) (string, error) {
	status, answer, err := w.send(ctx, http.MethodPost, "/api/sessions", "",
		map[string]string{"method": "password", "name": name, "password": password})
	var opened struct{ SessionID string }
	switch {
	case err != nil:
		return "", err
	case status != http.StatusOK:
		return "", fmt.Errorf("the login of %s is answered %d %s", name, status, answer)
	}
	err = json.Unmarshal(answer, &opened)
	return opened.SessionID, err
}

func (w *world) logout(ctx context.Context, token string) error {
	status, answer, err := w.send(ctx, http.MethodDelete, "/api/sessions/current", token, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("a logout is answered %d %s", status, answer)
	}
	return err
}

func (w *world) live(ctx context.Context, token string) (bool, error) {
	status, answer, err := w.send(ctx, http.MethodGet, "/api/sessions/current", token, nil)
	if err == nil && status != http.StatusOK && status != http.StatusUnauthorized {
		err = fmt.Errorf("a session is answered %d %s", status, answer)
	}
	return status == http.StatusOK, err
}

func (w *world) send(ctx context.Context, method, path, token string, body any) (int, []byte, error) {
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
	resp, err := w.web.Do(req)
	if err != nil {
		return 0, nil, &client.NetworkError{Sent: true, Err: err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, &client.NetworkError{Sent: true, Err: err}
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return resp.StatusCode, answer, &client.Error{Status: resp.StatusCode, Detail: string(answer)}
	}
	return resp.StatusCode, answer, nil
}
