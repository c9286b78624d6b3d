package controllers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	keyclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/status"
	"github.com/keyserver-operator/keyserver-operator/test/rig/schedules"
)

// These tests run the manager in simulated time, with the reconciler of Roles, its connection, a key server and an API
// server. Responses are late or lost. Calls take effect later or twice, and overtake each other. Simulated users change
// declarations and the key server. The seed, the method and the number of the call decide what happens to a call. So a
// seed defines a schedule.
//
// A status must never say Ready for a state that the key server did not have within upToDate. After the faults, every
// object must become Ready and agree with the key server.
const (
	faultsLast  = 90 * time.Second // simulated duration of the faults
	upToDate    = 30 * time.Second // maximum age of the state that Ready reports
	peoplePause = 40 * time.Second // longest pause between two changes by the simulated users
	settleTime  = 8 * time.Minute  // maximum time until all is Ready; shorter than a resync, which would hide mistakes
	simulated   = 2                // number of objects
	cluster     = "11111111-simulated"
)

// TestSchedules runs SCHEDULES schedules, starting at SCHEDULES_FROM.
func TestSchedules(t *testing.T) {
	var ready atomic.Uint64
	n := schedules.Each(t, 500, func(seed uint64) string {
		found := schedule(t, seed, false)
		ready.Add(uint64(found.readies))
		return found.asTest()
	})
	t.Logf("%d times Ready", ready.Load())
	if ready.Load() < n {
		t.Errorf("in %d schedules something became Ready %d times only", n, ready.Load())
	}
}

// TestSchedule30278 repeats a schedule in which a late response of a write replaced a newer reading. The status of
// role-0 said Ready until the next resync.
func TestSchedule30278(t *testing.T) {
	if wrong := schedule(t, 30278, false).asTest(); wrong != "" {
		t.Error(wrong)
	}
}

// TestWhoWasFoundByNoNoticeLooksAgain checks the updates after which a pass is required, because a notice may have
// missed the object.
func TestWhoWasFoundByNoNoticeLooksAgain(t *testing.T) {
	concerns := newWorld(1, false).registry(t).Controllers[0].Concerns()
	role := func(id string, reason v1beta1.Reason) *v1beta1.Role {
		obj := &v1beta1.Role{}
		obj.Name, obj.Status.RoleID = "a", id
		status.Conclude(&obj.Status.Conditions, 0, metav1.Now(), status.Conclusion{Reason: reason})
		return obj
	}
	ready, waiting := v1beta1.ReasonVerified, v1beta1.ReasonKeyServerUnavailable
	for name, c := range map[string]struct {
		was, is *v1beta1.Role
		want    bool
	}{
		"MadeAnew":       {role("1", ready), role("2", ready), true},
		"TheSame":        {role("1", ready), role("1", ready), false},
		"Lost":           {role("1", ready), role("", ready), false},
		"WaitsFromNowOn": {role("1", ready), role("1", waiting), true},
		"WokenByAllElse": {role("", waiting), role("1", ready), false},
		"WaitsOn":        {role("1", waiting), role("2", waiting), false},
	} {
		if got := concerns.Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSchedulesFindALiar checks that most schedules detect a key server that acknowledges writes without doing them. So
// the check can fail.
func TestSchedulesFindALiar(t *testing.T) {
	const n = 50
	found := 0
	for seed := range uint64(n) {
		if slices.ContainsFunc(schedule(t, seed, true).wrong, func(s string) bool { return strings.Contains(s, "says Ready") }) {
			found++
		}
	}
	if found < n*3/4 {
		t.Errorf("it was found in %d of %d schedules", found, n)
	}
}

// outcome is the result of a schedule.
type outcome struct {
	seed    uint64
	call    string // Go call that repeats the schedule
	created int    // number of acknowledged role creations during deleteAll
	readies int
	wrong   []string
	trace   *schedules.Trace
}

// asTest formats a failed outcome as the text of a Go test. It returns "" after a success.
func (o outcome) asTest() string {
	if len(o.wrong) == 0 {
		return ""
	}
	return o.trace.AsTest(o.seed, o.wrong, o.call+".asTest()")
}

func schedule(t *testing.T, seed uint64, lies bool) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(seed, lies)
		w.run(t)
		o = outcome{seed, fmt.Sprintf("schedule(t, %d, %t)", seed, lies), 0, w.readies, w.wrong, w.trace}
	})
	return o
}

// simWorld is a cluster, a key server and users.
type simWorld struct {
	dice  *schedules.Dice
	trace *schedules.Trace
	lies  bool
	// deletes means that run ends with deleteAll.
	deletes bool
	begin   time.Time
	faulty  atomic.Bool
	all     sync.WaitGroup

	mu      sync.Mutex
	readies int
	wrong   []string

	// State of the key server.
	roles   map[schema.HexID]schema.Role
	marks   map[schema.HexID]string
	known   map[schema.HexID]bool // roles with an acknowledged creation
	before  int                   // number of roles when deleteAll starts
	past    map[schema.HexID][]heldAt
	changes []schema.Change
	changed chan struct{} // closed at the next change
	ids     uint64

	// State of the API server and of the manager's cache.
	versions map[types.NamespacedName][]version
	specs    map[types.NamespacedName]map[int64]*v1beta1.Role // specs by generation
	indexes  map[string]client.IndexerFunc
	number   int
	wake     map[types.NamespacedName]chan struct{}
	concerns predicate.Predicate // update events of the kind that require a pass
}

// heldAt is the state of a role from a time on. role is nil if the role does not exist.
type heldAt struct {
	at   time.Time
	role *schema.Role
}

// version is a stored version of an object, with the time at which the manager's cache gets it.
type version struct {
	object *v1beta1.Role
	seen   time.Time
}

func newWorld(seed uint64, lies bool) *simWorld {
	w := &simWorld{
		dice: schedules.NewDice(seed), trace: schedules.Begin(), lies: lies, begin: time.Now(),
		roles: map[schema.HexID]schema.Role{}, marks: map[schema.HexID]string{}, known: map[schema.HexID]bool{}, past: map[schema.HexID][]heldAt{}, changed: make(chan struct{}),
		versions: map[types.NamespacedName][]version{}, specs: map[types.NamespacedName]map[int64]*v1beta1.Role{},
		indexes: map[string]client.IndexerFunc{}, wake: map[types.NamespacedName]chan struct{}{},
	}
	w.faulty.Store(true)
	return w
}

// registry returns a registry with the reconciler of roles.
func (w *simWorld) registry(t *testing.T) *reconcile.Registry {
	t.Helper()
	kube := &simCluster{w: w}
	timing := connection.DefaultTiming
	timing.LookEach = 10 * time.Second
	registry := Options{timing: &timing, Dial: func(connection.Endpoint) (connection.API, error) { return &simServer{w: w}, nil }}.registry(
		reconcile.Cluster{Client: kube, Live: kube, Recorder: &events.FakeRecorder{}}, kube, logr.Discard())
	if err := reconcile.Register(registry, roleAdapter{}); err != nil {
		t.Fatal(err)
	}
	return registry
}

// run plays the schedule and checks the end.
func (w *simWorld) run(t *testing.T) {
	ctx, stop := context.WithCancel(ctrl.LoggerInto(t.Context(), logr.Discard()))
	registry := w.registry(t)
	loop := registry.Controllers[0]
	w.concerns = loop.Concerns()
	registry.Connections.Listen(w.hear)
	name := func(n int) types.NamespacedName {
		return types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("role-%d", n)}
	}
	for n := range simulated {
		w.wake[name(n)] = make(chan struct{}, 1)
	}
	for n := range simulated {
		at := name(n)
		obj := &v1beta1.Role{}
		obj.Namespace, obj.Name, obj.UID = at.Namespace, at.Name, types.UID(at.Name)
		obj.Spec.KeyServerRef.Name, obj.Spec.ManagementPolicy, obj.Spec.AdoptionPolicy = "ks", v1beta1.Manage, v1beta1.AdoptAlways
		obj.Spec.DeletionPolicy = v1beta1.DeleteIfCreated
		obj.Spec.RoleName = new("Role " + strconv.Itoa(n))
		w.declare(obj)
	}
	if _, err := registry.Connections.Ensure("ks", connection.Login{Version: "1"}); err != nil {
		t.Fatal(err)
	}
	for at := range w.wake {
		w.all.Go(func() { w.work(ctx, loop, at) })
		w.all.Go(func() { w.people(ctx, at) })
	}
	time.Sleep(faultsLast)
	w.faulty.Store(false)
	w.trace.Say("the faults are over")
	deadline := time.Now().Add(settleTime)
	for !w.settled() && time.Now().Before(deadline) {
		time.Sleep(time.Second)
	}
	if !w.settled() {
		w.mu.Lock()
		for at := range w.wake {
			obj := w.newest(at)
			ready := meta.FindStatusCondition(obj.Status.Conditions, v1beta1.ConditionReady)
			w.wrong = append(w.wrong, fmt.Sprintf("%s after the faults, %s does not come to hold %v: %+v; the key server has %+v",
				settleTime, at.Name, obj.Spec.Operations, ready, w.roles))
		}
		w.mu.Unlock()
	}
	if w.deletes {
		w.deleteAll()
	}
	stop()
	registry.Connections.Close()
	w.all.Wait()
}

// settled reports whether every object is Ready and the key server agrees with its declaration.
func (w *simWorld) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.wake {
		obj := w.newest(at)
		ready := meta.FindStatusCondition(obj.Status.Conditions, v1beta1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != obj.Generation {
			return false
		}
		id, err := schema.ParseHexID(obj.Status.RoleID)
		role, there := w.roles[id]
		if err != nil || !there || !holds(&role, obj) {
			return false
		}
	}
	return true
}

// holds reports whether a role agrees with an object's declaration.
func holds(role *schema.Role, obj *v1beta1.Role) bool {
	var want []schema.HexID
	for _, name := range obj.Spec.Operations {
		want = append(want, operationID(name))
	}
	return role != nil && role.Name == *obj.Spec.RoleName && slices.Equal(asSet(role.Operations), asSet(want))
}

// work runs the passes of one object, one at a time. It repeats a pass after an error, or when requested.
func (w *simWorld) work(ctx context.Context, loop reconcile.Controller, at types.NamespacedName) {
	pause := 5 * time.Millisecond
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake[at]:
		case <-later:
		}
		later = nil
		result, err := loop.Reconcile(ctx, ctrl.Request{NamespacedName: at})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			later, pause = time.After(pause), min(2*pause, 15*time.Second)
		case result.RequeueAfter > 0:
			later, pause = time.After(result.RequeueAfter), 5*time.Millisecond
		default:
			pause = 5 * time.Millisecond
		}
	}
}

func (w *simWorld) enqueue(at types.NamespacedName) {
	select {
	case w.wake[at] <- struct{}{}:
	default:
	}
}

// hear enqueues the objects that a notice concerns.
func (w *simWorld) hear(_ context.Context, n connection.Notice) {
	if n.Kind == "" && n.IDs != nil {
		return
	}
	var concerned []types.NamespacedName
	w.mu.Lock()
	for at := range w.wake {
		obj := w.cached(at)
		if obj == nil {
			continue
		}
		if n.IDs == nil || n.IDs[obj.Status.RoleID] || !meta.IsStatusConditionTrue(obj.Status.Conditions, v1beta1.ConditionReady) {
			concerned = append(concerned, at)
		}
	}
	w.mu.Unlock()
	for _, at := range concerned {
		w.enqueue(at)
	}
}

// people simulates users that change declarations and the key server.
func (w *simWorld) people(ctx context.Context, at types.NamespacedName) {
	for {
		d := w.dice.Of("people " + at.Name)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(d.Int64N(int64(peoplePause)))):
		}
		if !w.faulty.Load() {
			return
		}
		w.mu.Lock()
		obj := w.newest(at).DeepCopy()
		w.mu.Unlock()
		switch d.IntN(4) {
		case 0, 1:
			obj.Spec.Operations = nil
			for _, name := range operationNames {
				if d.IntN(2) == 0 {
					obj.Spec.Operations = append(obj.Spec.Operations, name)
				}
			}
			w.declare(obj)
		default:
			if id, err := schema.ParseHexID(obj.Status.RoleID); err == nil {
				w.outside(id, d)
			}
		}
	}
}

// outside changes or deletes a role on the key server.
func (w *simWorld) outside(id schema.HexID, d *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	role, there := w.roles[id]
	switch {
	case !there:
	case d.IntN(3) == 0:
		w.put(id, nil, "deleted")
	default:
		role.Operations = []schema.HexID{operationID(operationNames[d.IntN(len(operationNames))])}
		w.put(id, &role, "updated")
	}
}

// put stores a role. The caller holds mu.
func (w *simWorld) put(id schema.HexID, role *schema.Role, action string) {
	if role == nil {
		delete(w.roles, id)
		if _, marked := w.marks[id]; marked {
			delete(w.marks, id)
			w.tell(connection.MarksFeed(roles.Name), id, "deleted")
		}
	} else {
		copied := *role
		copied.Operations = slices.Clone(role.Operations)
		role = &copied
		w.roles[id] = copied
	}
	w.past[id] = append(w.past[id], heldAt{time.Now(), role})
	w.tell(roles.Name, id, action)
}

func (w *simWorld) tell(kind string, id schema.HexID, action string) {
	w.changes = append(w.changes, schema.Change{Seq: int64(len(w.changes) + 1), Kind: kind, ID: id, Action: action})
	close(w.changed)
	w.changed = make(chan struct{})
}

// judge checks a new status for a wrong Ready. The caller holds mu.
func (w *simWorld) judge(obj *v1beta1.Role) {
	ready := meta.FindStatusCondition(obj.Status.Conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return
	}
	w.readies++
	said := w.specs[client.ObjectKeyFromObject(obj)][ready.ObservedGeneration]
	id, err := schema.ParseHexID(obj.Status.RoleID)
	if err == nil && said != nil {
		past := w.past[id]
		for i := len(past) - 1; i >= 0; i-- { // from the newest state back to upToDate
			if holds(past[i].role, said) {
				return
			}
			if time.Since(past[i].at) > upToDate {
				break
			}
		}
	}
	w.wrong = append(w.wrong, fmt.Sprintf("%.3fs: %s says Ready of generation %d (%q), which role %q was not in the %s before",
		time.Since(w.begin).Seconds(), obj.Name, ready.ObservedGeneration, ready.Message, obj.Status.RoleID, upToDate))
}

// fate says what happens to a call.
type fate struct {
	name          string
	before, after time.Duration // time until the call takes effect, and then until its response arrives
	lost          bool          // the response is lost
	never         bool          // the call has no effect
	later         time.Duration // if not 0: the call takes effect so much later, after its error
	again         time.Duration // if not 0: the call takes effect again so much later
}

func (w *simWorld) fate(method string, writes bool) fate {
	d := w.dice.Of(method)
	short := func(most time.Duration) time.Duration { return time.Duration(d.Int64N(int64(most))) }
	f := fate{name: "on time", before: short(10 * time.Millisecond), after: short(10 * time.Millisecond)}
	if !w.faulty.Load() {
		return f
	}
	switch n := d.IntN(20); {
	case n < 9:
	case n < 12:
		f.name, f.before, f.after = "late", short(7*time.Second), short(7*time.Second)
	case n < 14:
		f.name, f.never, f.lost = "lost", true, true
	case n < 16:
		f.name, f.lost = "answer lost", true
	case n < 18 && writes:
		f.name, f.never, f.lost, f.later = "overtaken", true, true, short(20*time.Second)
	case n < 20 && writes:
		f.name, f.again = "twice", short(20*time.Second)
	}
	return f
}

var errLost = &keyclient.NetworkError{Sent: true, Err: errors.New("the connection was lost")}

// ask simulates a call to the key server. effect runs while mu is held.
func ask[T any](ctx context.Context, w *simWorld, method string, writes bool, effect func() (T, error)) (answer T, err error) {
	f := w.fate(method, writes)
	take := func() (T, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return effect()
	}
	eventually := func(after time.Duration) {
		w.all.Go(func() {
			time.Sleep(after)
			_, err := take()
			w.trace.Say("key server: %s takes effect late: %v", method, err)
		})
	}
	if !wait(ctx, f.before) {
		return answer, ctx.Err()
	}
	if f.later > 0 {
		eventually(f.later)
	}
	if f.again > 0 {
		eventually(f.again)
	}
	if !f.never {
		answer, err = take()
	}
	if writes || f.lost {
		w.trace.Say("key server: %s %s: %v", method, f.name, err)
	}
	if !wait(ctx, f.after) {
		var none T
		return none, ctx.Err()
	}
	if f.lost {
		var none T
		return none, errLost
	}
	return answer, err
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

var operationNames = []string{"HMAC Data", "Create Key", "Read Audit"}

func operationID(name string) schema.HexID {
	return schema.HexID{7: byte(1 + slices.Index(operationNames, name))}
}

// simServer is the simulated key server.
type simServer struct {
	connection.API
	w *simWorld
}

func refusal(status int, code string) error {
	return &keyclient.Error{Status: status, Code: code, Detail: "simulated"}
}

func (s *simServer) GetReadiness(ctx context.Context) (schema.Ready, error) {
	return ask(ctx, s.w, "GetReadiness", false, func() (schema.Ready, error) { return schema.Ready{Ready: true}, nil })
}

func (s *simServer) GetVersion(ctx context.Context) (schema.Version, error) {
	return ask(ctx, s.w, "GetVersion", false, func() (schema.Version, error) { return schema.Version{Version: "simulated"}, nil })
}

func (s *simServer) ListOperations(ctx context.Context) (schema.OperationList, error) {
	return ask(ctx, s.w, "ListOperations", false, func() (l schema.OperationList, err error) {
		for _, name := range operationNames {
			l.Operations = append(l.Operations, schema.Operation{ID: operationID(name), Name: name})
		}
		return l, nil
	})
}

func (s *simServer) ListRoles(ctx context.Context) (schema.RoleList, error) {
	return ask(ctx, s.w, "ListRoles", false, func() (l schema.RoleList, err error) {
		for _, r := range s.w.roles {
			l.Roles = append(l.Roles, r)
		}
		return l, nil
	})
}

func (s *simServer) ListOwners(ctx context.Context, _ schema.OwnerQuery) (schema.OwnerList, error) {
	return ask(ctx, s.w, "ListOwners", false, func() (l schema.OwnerList, err error) {
		for id, owner := range s.w.marks {
			l.Owners = append(l.Owners, schema.OwnerMark{Kind: roles.Name, ID: id, Owner: owner})
		}
		return l, nil
	})
}

// named finds a role by its name. The caller holds mu.
func (w *simWorld) named(name string) (id schema.HexID, there bool) {
	for id, r := range w.roles {
		if r.Name == name {
			return id, true
		}
	}
	return id, false
}

func (s *simServer) CreateRole(ctx context.Context, in schema.CreateRoleRequest) (schema.RoleSaved, error) {
	saved, err := ask(ctx, s.w, "CreateRole", true, func() (saved schema.RoleSaved, err error) {
		if _, there := s.w.named(in.Name); there {
			return saved, refusal(409, "ALREADY_EXISTS")
		}
		s.w.ids++
		id := schema.HexID{0: 1, 7: byte(s.w.ids)}
		role := schema.Role{ID: id, Name: in.Name, Operations: in.Operations}
		if !s.w.lies {
			s.w.marks[id] = markOf("role-" + strings.TrimPrefix(in.Name, "Role "))
			s.w.put(id, &role, "created")
			s.w.tell(connection.MarksFeed(roles.Name), id, "created")
		}
		return schema.RoleSaved{ID: id, Saved: true, Role: &role}, nil
	})
	if err == nil {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		s.w.known[saved.ID] = true
	}
	return saved, err
}

func (s *simServer) UpdateRole(ctx context.Context, in schema.UpdateRoleRequest) (schema.RoleSaved, error) {
	return ask(ctx, s.w, "UpdateRole", true, func() (saved schema.RoleSaved, err error) {
		role, there := s.w.roles[in.ID]
		if !there {
			return saved, refusal(404, "NOT_FOUND")
		}
		if in.Operations != nil {
			role.Operations = in.Operations
		}
		if !s.w.lies {
			s.w.put(in.ID, &role, "updated")
		}
		return schema.RoleSaved{ID: in.ID, Saved: true, Role: &role}, nil
	})
}

func (s *simServer) SetOwner(ctx context.Context, in schema.SetOwnerRequest) (schema.OwnerSaved, error) {
	return ask(ctx, s.w, "SetOwner", true, func() (saved schema.OwnerSaved, err error) {
		if _, there := s.w.roles[in.ID]; !there {
			return saved, refusal(404, "NOT_FOUND")
		}
		if have := s.w.marks[in.ID]; have != in.Expect && have != in.Owner {
			return saved, refusal(409, "OWNED")
		}
		action := "updated"
		if _, marked := s.w.marks[in.ID]; !marked {
			action = "created"
		}
		s.w.marks[in.ID] = in.Owner
		s.w.tell(connection.MarksFeed(roles.Name), in.ID, action)
		return schema.OwnerSaved{OwnerMark: schema.OwnerMark{Kind: in.Kind, ID: in.ID, Owner: in.Owner}, Saved: true}, nil
	})
}

// ListChanges waits for a change, like a long poll.
func (s *simServer) ListChanges(ctx context.Context, in schema.ChangesQuery) (schema.ChangePage, error) {
	return ask(ctx, s.w, "ListChanges", false, func() (schema.ChangePage, error) {
		deadline := time.Now().Add(in.LongPoll())
		for {
			if have := int64(len(s.w.changes)); have > *in.After {
				return schema.ChangePage{Cursor: have, Changes: slices.Clone(s.w.changes[*in.After:])}, nil
			}
			changed := s.w.changed
			s.w.mu.Unlock()
			timer := time.NewTimer(time.Until(deadline))
			select {
			case <-changed:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			s.w.mu.Lock()
			if ctx.Err() != nil || !time.Now().Before(deadline) && int64(len(s.w.changes)) <= *in.After {
				return schema.ChangePage{Cursor: *in.After}, ctx.Err()
			}
		}
	})
}

// simCluster is the API server behind a cache that lags.
type simCluster struct {
	client.Client
	w *simWorld
}

// IndexField implements client.FieldIndexer.
func (c *simCluster) IndexField(_ context.Context, _ client.Object, field string, extract client.IndexerFunc) error {
	c.w.indexes[field] = extract
	return nil
}

// declare stores a spec like a user.
func (w *simWorld) declare(obj *v1beta1.Role) {
	lag := w.lag()
	w.trace.Say("people: %s declares %q", obj.Name, obj.Spec.Operations)
	w.mu.Lock()
	defer w.mu.Unlock()
	at := client.ObjectKeyFromObject(obj)
	if have := w.newest(at); have != nil {
		next := have.DeepCopy()
		next.Spec = obj.Spec
		obj = next
	}
	obj.Generation++
	if w.specs[at] == nil {
		w.specs[at] = map[int64]*v1beta1.Role{}
	}
	w.specs[at][obj.Generation] = obj.DeepCopy()
	w.store(obj, lag)
}

// lag returns the delay of the cache. It is longer if the watch has ended and restarts.
func (w *simWorld) lag() time.Duration {
	if !w.faulty.Load() {
		return 5 * time.Millisecond
	}
	d := w.dice.Of("cache")
	most := time.Second
	if d.IntN(10) == 0 {
		most = 20 * time.Second
	}
	return time.Duration(d.Int64N(int64(most)))
}

// store adds a version of an object. After lag, the cache gets it and sends an event, like an informer. The caller
// holds mu.
func (w *simWorld) store(obj *v1beta1.Role, lag time.Duration) {
	at := client.ObjectKeyFromObject(obj)
	w.number++
	obj = obj.DeepCopy()
	obj.ResourceVersion = strconv.Itoa(w.number)
	seen := time.Now().Add(lag)
	have := w.versions[at]
	if len(have) > 0 && have[len(have)-1].seen.After(seen) {
		seen = have[len(have)-1].seen
	}
	w.versions[at] = append(have, version{obj, seen})
	w.all.Go(func() {
		time.Sleep(time.Until(seen))
		if len(have) == 0 || w.concerns.Update(event.UpdateEvent{ObjectOld: have[len(have)-1].object, ObjectNew: obj}) {
			w.enqueue(at)
		}
	})
}

// newest returns an object from the API server. The caller holds mu.
func (w *simWorld) newest(at types.NamespacedName) *v1beta1.Role {
	have := w.versions[at]
	if len(have) == 0 {
		return nil
	}
	return have[len(have)-1].object
}

// cached returns an object from the cache. The caller holds mu.
func (w *simWorld) cached(at types.NamespacedName) *v1beta1.Role {
	have := w.versions[at]
	for i := len(have) - 1; i >= 0; i-- {
		if !have[i].seen.After(time.Now()) {
			return have[i].object
		}
	}
	return nil
}

var keyServerGrant = v1beta1.Grant{
	Name: "all", Namespaces: v1beta1.GrantedNamespaces{Names: []string{"default"}}, Kinds: []v1beta1.GrantedKind{"Role"},
	Names: []string{"*"}, Operations: operationNames, Adopt: true,
}

// Get implements client.Reader.
func (c *simCluster) Get(_ context.Context, at client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	switch obj := to.(type) {
	case *v1beta1.KeyServer:
		obj.Name, obj.Spec.Grants = at.Name, []v1beta1.Grant{keyServerGrant}
		return nil
	case *metav1.PartialObjectMetadata:
		obj.UID = cluster
		return nil
	case *v1beta1.Role:
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if have := c.w.cached(at); have != nil {
			have.DeepCopyInto(obj)
			return nil
		}
	}
	return apierrors.NewNotFound(k8sschema.GroupResource{Resource: "roles"}, at.Name)
}

// List implements client.Reader for indexes.
func (c *simCluster) List(_ context.Context, to client.ObjectList, options ...client.ListOption) error {
	list, is := to.(*v1beta1.RoleList)
	if !is {
		return fmt.Errorf("%T is not simulated", to)
	}
	var o client.ListOptions
	o.ApplyOptions(options)
	by := o.FieldSelector.Requirements()[0]
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for at := range c.w.wake {
		if obj := c.w.cached(at); obj != nil && slices.Contains(c.w.indexes[by.Field](obj), by.Value) {
			list.Items = append(list.Items, *obj)
		}
	}
	return nil
}

// Patch implements client.Writer.
func (c *simCluster) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return c.patch(obj, func(next, sent *v1beta1.Role) {
		next.Annotations, next.Finalizers = sent.Annotations, sent.Finalizers
	})
}

// Status implements client.StatusClient.
func (c *simCluster) Status() client.SubResourceWriter { return simStatus{cluster: c} }

type simStatus struct {
	client.SubResourceWriter
	cluster *simCluster
}

// Patch implements client.SubResourceWriter.
func (s simStatus) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.cluster.patch(obj, func(next, sent *v1beta1.Role) {
		next.Status = sent.Status
		s.cluster.w.judge(next)
	})
}

// patch fails if the object has changed since sent was read, like every patch of the manager. Its response may be late
// or lost.
func (c *simCluster) patch(sent client.Object, change func(next, sent *v1beta1.Role)) error {
	obj, is := sent.(*v1beta1.Role)
	if !is {
		return fmt.Errorf("%T is not simulated", sent)
	}
	f, lag := c.w.fate("patch", false), c.w.lag()
	time.Sleep(f.before / 10)
	if f.never {
		return errors.New("the API server does not answer")
	}
	if err := c.apply(obj, lag, change); err != nil {
		return err
	}
	time.Sleep(f.after / 10)
	if f.lost {
		return errors.New("the API server's answer was lost")
	}
	return nil
}

func (c *simCluster) apply(obj *v1beta1.Role, lag time.Duration, change func(next, sent *v1beta1.Role)) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	at := client.ObjectKeyFromObject(obj)
	have := c.w.newest(at)
	if have == nil {
		return apierrors.NewNotFound(k8sschema.GroupResource{Resource: "roles"}, obj.Name)
	}
	if have.ResourceVersion != obj.ResourceVersion {
		return apierrors.NewConflict(k8sschema.GroupResource{Resource: "roles"}, obj.Name, errors.New("simulated"))
	}
	next := have.DeepCopy()
	change(next, obj.DeepCopy())
	if ends(next) {
		c.w.release(at, lag)
		return nil
	}
	c.w.store(next, lag)
	c.w.newest(at).DeepCopyInto(obj)
	return nil
}
