package sink

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2/event"

	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest"
	"github.com/keyserver-operator/keyserver-operator/internal/store/pgtest/migrated"
	"github.com/keyserver-operator/keyserver-operator/internal/store/sqlstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/inbox"
)

// web is an HTTPS receiver that requires a header. A test can replace its response to a request.
type web struct {
	inbox.Inbox
	*httptest.Server
	url   string
	other atomic.Pointer[http.HandlerFunc]
	asked atomic.Int64
}

const secret = "Bearer the secret of the receiver"

func newWeb(t testing.TB) *web {
	t.Helper()
	w := &web{}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		if other := w.other.Load(); other != nil {
			(*other)(out, r)
			return
		}
		if err := w.take(r); err != nil {
			t.Error(err)
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		out.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(w.Close)
	dir := t.TempDir()
	ca, headers := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "headers")
	rig.Must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}), 0o600))
	rig.Must(t, os.WriteFile(headers, []byte("Authorization: "+secret+"\n"), 0o600))
	w.url = w.URL + "/in?ca=" + ca + "&header-file=" + headers
	return w
}

// take reads a batch with the library of CloudEvents.
func (w *web) take(r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil //nolint:nilerr // the sender has gone
	}
	if r.Header.Get("Authorization") != secret || !strings.HasPrefix(r.Header.Get("Content-Type"), sdk.ApplicationCloudEventsBatchJSON) {
		return fmt.Errorf("headers %v", r.Header)
	}
	var events []sdk.Event
	if err := json.Unmarshal(body, &events); err != nil {
		return err
	}
	for i, e := range events {
		if err := e.Validate(); err != nil {
			return err
		}
		if last := i == len(events)-1; last != (e.Type() == "dev.keyserver.audit.seal") || e.SpecVersion() != "1.0" {
			return fmt.Errorf("event %d of %d is %s", i, len(events), e.Type())
		}
		if err := w.Take(e.Data()); err != nil {
			return err
		}
	}
	return nil
}

func (w *web) answer(f http.HandlerFunc) { w.other.Store(&f) }

// TestWhatIsNoAcknowledgement checks that none of these responses acknowledges rows, and that the error contains
// neither the response nor the request.
func TestWhatIsNoAcknowledgement(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 3)
	b := w.batch(t)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
	}{
		"refused": {func(out http.ResponseWriter, _ *http.Request) { http.Error(out, "their words", http.StatusForbidden) }, "status 403"},
		"failed": {func(out http.ResponseWriter, _ *http.Request) {
			http.Error(out, "their words", http.StatusServiceUnavailable)
		}, "status 503"},
		"a redirection": {func(out http.ResponseWriter, r *http.Request) {
			http.Redirect(out, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "status 307"},
		"information":    {func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(http.StatusNotModified) }, "status 304"},
		"a giant answer": {func(out http.ResponseWriter, _ *http.Request) { _, _ = out.Write(make([]byte, 1<<20)) }, "more than"},
		"an answer cut":  {cut, "cut"},
		"no answer":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "closes the connection"},
		"a giant header": {func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("X", strings.Repeat("their words", 20_000))
		}, ""},
		"byte by byte":       {drip, "in time"},
		"nothing until late": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() }, "in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := newWeb(t)
			receiver.Config.ErrorLog = nil
			receiver.answer(c.answer)
			open, err := openCloudEvents(target(t, receiver.url))
			rig.Must(t, err)
			defer open.close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err = open.send(ctx, b)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "their words") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v", err)
			}
		})
	}
}

// cut responds with 200 and a Content-Length, sends fewer bytes, and closes the connection.
func cut(out http.ResponseWriter, _ *http.Request) {
	out.Header().Set("Content-Length", "100")
	_, _ = out.Write([]byte("their words"))
	_ = http.NewResponseController(out).Flush()
	panic(http.ErrAbortHandler)
}

// drip responds with 200 and a body that never ends.
func drip(out http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = out.Write([]byte("x"))
		_ = http.NewResponseController(out).Flush()
		time.Sleep(50 * time.Millisecond)
	}
}

// TestAReceiverThatIsNotTrusted checks that an untrusted receiver gets no data.
func TestAReceiverThatIsNotTrusted(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 1)
	receiver := newWeb(t)
	open, err := openCloudEvents(target(t, receiver.URL+"/in"))
	rig.Must(t, err)
	defer open.close()
	if err := open.send(t.Context(), w.batch(t)); err == nil || !strings.Contains(err.Error(), "certificate") || receiver.asked.Load() != 0 {
		t.Errorf("%v, asked %d times", err, receiver.asked.Load())
	}
}

// TestNothingLacks uses several processes on one database, and receivers that are unavailable or fail after they have
// received a batch. It verifies with the key alone that each receiver has all rows.
func TestNothingLacks(t *testing.T) {
	signer := newSigner(t)
	for name, databases := range map[string]func(t *testing.T) []sqlstore.Config{
		"SQLite": func(t *testing.T) []sqlstore.Config { return []sqlstore.Config{{Dir: t.TempDir()}} },
		"PostgreSQL": func(t *testing.T) []sqlstore.Config {
			url := pgtest.Database(t)
			return []sqlstore.Config{{URL: url}, {URL: url}, {URL: url}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var replicas []*trail
			for _, database := range databases(t) {
				replicas = append(replicas, newTrail(t, database, signer))
			}
			good, bad := newWeb(t), newWeb(t)
			// The bad receiver stores every second batch without acknowledging it.
			bad.answer(func(out http.ResponseWriter, r *http.Request) {
				if err := bad.take(r); err != nil {
					t.Error(err)
				}
				if bad.asked.Load()%2 == 1 {
					panic(http.ErrAbortHandler)
				}
			})
			var stops []func()
			for _, replica := range replicas {
				c := replica.config(t)
				for _, receiver := range []*web{good, bad} {
					stops = append(stops, background(t, New(c, target(t, receiver.url)).Run))
				}
			}
			replicas[0].write(t, 2500)
			last := replicas[len(replicas)-1]
			last.write(t, 10)
			end, err := last.store.AuditEnd(t.Context())
			rig.Must(t, err)
			for _, receiver := range []*web{good, bad} {
				rig.Succeeds(t, func() error {
					if proven, err := receiver.Proven(signer.Verifier); err != nil || proven != end {
						return fmt.Errorf("%d of %d: %w", proven, end, errors.Join(err, errors.New("not yet")))
					}
					return nil
				})
			}
			// A runner that stops releases its sinks immediately.
			stops[0]()
			stops[1]()
			last.write(t, 5)
			rig.Succeeds(t, func() error {
				if proven, err := good.Proven(signer.Verifier); len(replicas) > 1 && proven < end+5 {
					return fmt.Errorf("%d of %d: %w", proven, end+5, errors.Join(err, errors.New("not yet")))
				}
				return nil
			})
			failed, again, unnoted := 0, 0, 0
			for _, replica := range replicas {
				failed += replica.log.count("does not accept rows")
				again += replica.log.count("accepts rows again")
				unnoted += replica.log.count("may be delivered to it again")
			}
			// On a busy disk, an acknowledgement may not be stored in time. Then good receives the rows again.
			if good.Duplicates != 0 && unnoted == 0 || bad.Duplicates == 0 {
				t.Errorf("duplicates: %d where all went well, %d where not", good.Duplicates, bad.Duplicates)
			}
			if failed == 0 || again == 0 {
				t.Errorf("%d failures and %d recoveries were told", failed, again)
			}
			good.Forget(17)
			if _, err := good.Proven(signer.Verifier); err == nil {
				t.Error("a row that lacks is not seen")
			}
		})
	}
}

// TestRowsAsOCSF checks the attributes that OCSF 1.8.0 requires for the classes.
func TestRowsAsOCSF(t *testing.T) {
	w := newTrail(t, sqlstore.Config{Dir: migrated.Dir(t)}, newSigner(t))
	w.write(t, 1)
	b := w.batch(t)
	rows := b.rows[:1]
	for operation, want := range map[string]string{
		"login": "300201", "logout": "300202", "createRole": "600301", "listKeys": "600302", "amendACL": "600303", "deleteRole": "600304", "hmacData": "600399", "start": "600399",
	} {
		rows[0].Operation, rows[0].Address = operation, ""
		list, err := b.messages()
		rig.Must(t, err)
		for i, m := range list {
			var e map[string]any
			rig.Must(t, json.Unmarshal(m.json, &e))
			needed := []string{"activity_id", "category_uid", "class_uid", "type_uid", "severity_id", "time", "metadata"}
			switch e["class_uid"] {
			case 3002.:
				needed = append(needed, "user", "service")
			case 6003.:
				needed = append(needed, "actor", "api", "src_endpoint")
			case 0.:
				needed = append(needed, "unmapped")
			}
			for _, name := range needed {
				if e[name] == nil {
					t.Errorf("%s lacks %s: %s", operation, name, m.json)
				}
			}
			if got := fmt.Sprint(e["type_uid"]); i == 0 && got != want && got != want[:1]+"."+want[1:]+"e+06" {
				t.Errorf("%s is %v, want %s", operation, got, want)
			}
		}
	}
}
