package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// Report is a plan that can be printed as text or as JSON.
type Report struct {
	KeyServers []KeyServer `json:"keyServers"`
	Objects    []Object    `json:"objects"`
	Summary    Summary     `json:"summary"`
}

// KeyServer is a key server that the plan has connected to.
type KeyServer struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Version string `json:"version,omitempty"`
	Message string `json:"message"`
}

// Object is the planned action for one object.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	KeyServer string `json:"keyServer"`
	Source    string `json:"source"`

	Action  reconcile.PlannedAction `json:"action"`
	Reason  v1beta1.Reason          `json:"reason"`
	Message string                  `json:"message"`
	// External describes the external object. ExternalID is empty if the external object does not exist.
	External   string `json:"external,omitempty"`
	ExternalID string `json:"externalId,omitempty"`
	// Fields are the differing fields, or all declared fields if the external object does not exist.
	Fields []Field `json:"fields"`
	// WaitsFor names objects of the files that must be applied first.
	WaitsFor []string `json:"waitsFor"`
	// Calls are the writes that the plan did not send.
	Calls []string `json:"calls"`
}

// Field is one field of the spec. Observed is nil if the external object does not exist.
type Field struct {
	Field    string  `json:"field"`
	Declared string  `json:"declared"`
	Observed *string `json:"observed"`
}

// Summary counts objects by action. None also counts observed objects that differ; Drifted counts only these.
type Summary struct {
	Create  int `json:"create"`
	Update  int `json:"update"`
	Adopt   int `json:"adopt"`
	Delete  int `json:"delete"`
	None    int `json:"none"`
	Blocked int `json:"blocked"`
	Drifted int `json:"drifted"`
	// Ignored counts manifests of other kinds.
	Ignored int `json:"ignored"`
	// Agrees is true if the key servers agree with the files. Applying the files would then not change them.
	Agrees bool `json:"agrees"`
}

func (w *world) report(ctx context.Context, intents []reconcile.Intent) (*Report, error) {
	r := &Report{KeyServers: []KeyServer{}, Objects: []Object{}, Summary: Summary{Ignored: w.ignored}}
	for _, name := range w.connected {
		ks := &v1beta1.KeyServer{}
		if err := w.snapshot.Get(ctx, client.ObjectKey{Name: name}, ks); err != nil {
			return nil, err
		}
		row := KeyServer{Name: name, URL: ks.Spec.URL, Version: ks.Status.Version}
		if ready := meta.FindStatusCondition(ks.Status.Conditions, v1beta1.ConditionReady); ready != nil {
			row.Message = ready.Message
		}
		r.KeyServers = append(r.KeyServers, row)
	}
	for _, i := range intents {
		o, err := w.objectOf(i)
		if err != nil {
			return nil, err
		}
		r.Objects = append(r.Objects, o)
		r.Summary.count(o)
	}
	s := r.Summary
	r.Summary.Agrees = s.Create+s.Update+s.Delete+s.Blocked+s.Drifted == 0
	return r, nil
}

func (s *Summary) count(o Object) {
	switch o.Action {
	case reconcile.PlanCreate:
		s.Create++
	case reconcile.PlanUpdate:
		s.Update++
	case reconcile.PlanAdopt:
		s.Adopt++
	case reconcile.PlanDelete:
		s.Delete++
	case reconcile.PlanBlocked:
		s.Blocked++
	case reconcile.PlanNone:
		s.None++
	}
	if o.Reason == v1beta1.ReasonDrifted {
		s.Drifted++
	}
}

func (w *world) objectOf(i reconcile.Intent) (Object, error) {
	o := Object{
		Kind: i.Kind, Namespace: i.Object.GetNamespace(), Name: i.Object.GetName(),
		Action: i.Action, Reason: i.Reason, Message: i.Message, External: i.What, ExternalID: i.ID,
		Fields: []Field{}, WaitsFor: append([]string{}, i.WaitsFor...), Calls: append([]string{}, i.Calls...),
	}
	if m, is := i.Object.(reconcile.Object); is {
		spec, _ := m.Managed()
		o.KeyServer = spec.KeyServerRef.Name
		o.Source = w.seen[seenKey(o.Kind, m)].String()
	}
	if o.Action == reconcile.PlanCreate {
		var err error
		o.Fields, err = declared(i.Object)
		return o, err
	}
	for _, d := range i.Drift {
		o.Fields = append(o.Fields, Field{Field: d.Field, Declared: d.Declared, Observed: &d.Observed})
	}
	return o, nil
}

// declared returns the fields of an object that does not exist on the key server. It omits fields that all kinds have.
// Certificates and trust blobs are replaced by their description in the status.
func declared(obj client.Object) ([]Field, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	spec, is := content["spec"].(map[string]any)
	if !is {
		return nil, fmt.Errorf("a %T has no spec", obj)
	}
	for _, shared := range []string{"keyServerRef", "managementPolicy", "adoptionPolicy", "deletionPolicy", "resyncInterval", "rotation"} {
		delete(spec, shared)
	}
	switch o := obj.(type) {
	case *v1beta1.TrustedCA:
		spec["certificate"] = map[string]any{"subject": o.Status.Subject, "sha256": o.Status.Fingerprint}
	case *v1beta1.TrustedServer:
		spec["trustBlob"] = map[string]any{
			"systemId": number(o.Status.SystemID), "serverName": o.Status.ServerName, "port": number(o.Status.Port),
			"certificateSha256": o.Status.Fingerprint,
		}
	}
	var out []Field
	flatten("", spec, &out)
	slices.SortFunc(out, func(a, b Field) int { return strings.Compare(a.Field, b.Field) })
	return out, nil
}

func number[N int32 | int64](n *N) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// flatten lists the values in a spec with their paths. A list of scalars is one value. The path of an object in a list
// has its principal, or else its index.
func flatten(path string, value any, out *[]Field) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			flatten(strings.TrimPrefix(path+"."+name, "."), inner, out)
		}
	case []any:
		var scalars []string
		for i, inner := range v {
			m, object := inner.(map[string]any)
			if !object {
				scalars = append(scalars, fmt.Sprint(inner))
				continue
			}
			key := fmt.Sprint(i)
			if p, named := m["principal"].(string); named {
				key = p
				delete(m, "principal")
			}
			flatten(path+"["+key+"]", m, out)
		}
		if scalars != nil || len(v) == 0 {
			*out = append(*out, Field{Field: path, Declared: strings.Join(scalars, ", ")})
		}
	default:
		if text := fmt.Sprint(v); text != "" {
			*out = append(*out, Field{Field: path, Declared: text})
		}
	}
}

// JSON writes the report as JSON.
func (r *Report) JSON(out io.Writer) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return err
	}
	_, err := out.Write(b.Bytes())
	return err
}

// marks has the first character of a line for each action.
var marks = map[reconcile.PlannedAction]string{
	reconcile.PlanCreate: "+", reconcile.PlanUpdate: "~", reconcile.PlanAdopt: "=",
	reconcile.PlanDelete: "-", reconcile.PlanNone: " ", reconcile.PlanBlocked: "!",
}

// Text writes the report as text.
func (r *Report) Text(out io.Writer) error {
	var b bytes.Buffer
	for _, ks := range r.KeyServers {
		fmt.Fprintf(&b, "KeyServer %s at %s: %s\n", ks.Name, printable(ks.URL), printable(ks.Message))
	}
	for _, o := range r.Objects {
		b.WriteByte('\n')
		o.text(&b)
	}
	s := r.Summary
	fmt.Fprintf(&b, "\nPlan: %d to create, %d to update, %d to delete, %d to adopt, %d blocked, %d without a change",
		s.Create, s.Update, s.Delete, s.Adopt, s.Blocked, s.None)
	if s.Drifted > 0 {
		fmt.Fprintf(&b, " (%d drifted, only observed)", s.Drifted)
	}
	b.WriteString(".\n")
	if s.Agrees {
		b.WriteString("The key server agrees with the files.\n")
	}
	_, err := out.Write(b.Bytes())
	return err
}

func (o Object) text(b *bytes.Buffer) {
	action := string(o.Action)
	switch {
	case o.Action == reconcile.PlanBlocked:
		action += " (" + string(o.Reason) + ")"
	case o.Reason == v1beta1.ReasonDrifted:
		action += " (only observed)"
	}
	fmt.Fprintf(b, "%s %s %s/%s: %s\n", marks[o.Action], o.Kind, o.Namespace, o.Name, action)
	fmt.Fprintf(b, "    %s\n", printable(o.Message))
	if len(o.WaitsFor) > 0 {
		fmt.Fprintf(b, "    waits for %s, which comes first in this plan\n", strings.Join(o.WaitsFor, " and "))
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, f := range o.Fields {
		if f.Observed == nil {
			fmt.Fprintf(w, "    + %s\t%s\n", printable(f.Field), short(f.Declared))
			continue
		}
		fmt.Fprintf(w, "    - %s\t%s\n", printable(f.Field), short(*f.Observed))
		fmt.Fprintf(w, "    + %s\t%s\n", printable(f.Field), short(f.Declared))
	}
	_ = w.Flush() // writing to a buffer cannot fail
}

// short shortens a value for a line. The JSON has the full value.
func short(s string) string {
	const most = 400
	s = printable(s)
	if s == "" {
		return `""`
	}
	return brief.Clip(s, most)
}
