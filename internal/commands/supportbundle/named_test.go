package supportbundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	api "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// marker is the prefix of each text that plant writes into a field. The path of the field follows.
const marker = "Pl4nted:"

var (
	inPlain   = regexp.MustCompile(marker + `[\w.]*`)
	inEncoded = regexp.MustCompile(base64.StdEncoding.EncodeToString([]byte(marker))[:10] + `[\w+/]*=*`)
)

// plant sets each text in a value to the marker and the path of the text. It includes nested maps, lists and objects.
func plant(v reflect.Value, path string) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time](), v.Type() == reflect.TypeFor[metav1.Time](), v.Type() == reflect.TypeFor[metav1.MicroTime]():
		at := v
		if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
			at = v.FieldByName("Time")
		}
		at.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0)))
		return
	case v.Type() == reflect.TypeFor[metav1.FieldsV1]():
		v.FieldByName("Raw").SetBytes([]byte(`"` + marker + path + `"`)) // the field has JSON
		return
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		v.SetBytes([]byte(marker + path))
		return
	case reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()):
		return // ids and quantities cannot have a planted text
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(marker + path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, path+".key")
		plant(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Anonymous {
				plant(v.Field(i), path)
			} else if f.IsExported() {
				plant(v.Field(i), strings.TrimPrefix(path+"."+f.Name, "."))
			}
		}
	default:
	}
}

func planted[T any]() *T {
	var v T
	plant(reflect.ValueOf(&v).Elem(), "")
	return &v
}

// found returns the sorted paths of the planted texts in a text.
func found(text string) []string {
	all := inPlain.FindAllString(text, -1)
	for _, spelt := range inEncoded.FindAllString(text, -1) {
		if raw, err := base64.StdEncoding.DecodeString(spelt); err == nil {
			all = append(all, string(raw))
		}
	}
	for i, one := range all {
		all[i] = strings.TrimPrefix(one, marker)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// packedBy returns the texts of the files that add adds to a bundle, by name.
func packedBy(t *testing.T, add func(*Writer) error) map[string]string {
	t.Helper()
	var packed bytes.Buffer
	w := New(t.Context(), &packed, time.Unix(1_700_000_000, 0))
	rig.Must(t, errors.Join(add(w), w.Close()))
	files := map[string]string{}
	for name, file := range rig.Unpacked(t, packed.Bytes()) {
		files[strings.TrimPrefix(name, "support-bundle/")] = file.Text
	}
	return files
}

// only checks that a file has the planted texts of exactly these fields.
func only(t *testing.T, files map[string]string, name, fields string) {
	t.Helper()
	want := strings.Fields(fields)
	slices.Sort(want)
	if got := found(files[name]); !slices.Equal(got, want) {
		t.Errorf("%s has the texts of\n%q, instead of those of\n%q:\n%s", name, got, want, files[name])
	}
}

// unnamed adds a field to each object in a JSON value. It skips allowList, whose values are not texts.
func unnamed(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			if key != "allowList" {
				v[key] = unnamed(v[key])
			}
		}
		v["unnamed"] = marker + "unnamed"
	case []any:
		for i := range v {
			v[i] = unnamed(v[i])
		}
	}
	return value
}

// TestOnlyNamedFieldsOfAKeyServerArePacked plants each text of each response, and adds an unknown field to each object.
func TestOnlyNamedFieldsOfAKeyServerArePacked(t *testing.T) {
	settings := planted[schema.Configuration]()
	for tag := range settingNames {
		settings.Nodes = append(settings.Nodes, schema.ConfigNode{Tag: tag, Attrs: schema.Attributes{"unnamed": marker + "unnamed"}})
		for _, name := range settingNames[tag] {
			settings.Nodes[len(settings.Nodes)-1].Attrs[name] = marker + "named"
		}
	}
	servers := planted[schema.TrustedServerList]()
	servers.TrustedServers[0].TrustBlob = nil // the client parses it, so it cannot have a planted text
	answers := map[string]any{
		"/api/ready": planted[schema.Ready](), "/api/server/version": planted[schema.Version](), "/api/config/get": settings,
		"/api/custody": planted[schema.Custody](), "/api/authority": planted[schema.AuthorityList](), "/api/trusted-cas": planted[schema.TrustedCAList](),
		"/api/trusted-servers": servers, "/api/witness": planted[schema.Witness](),
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := json.Marshal(answers[r.URL.Path])
		var answer any
		if err = errors.Join(err, json.Unmarshal(raw, &answer)); err != nil || answer == nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(unnamed(answer))
	}))
	t.Cleanup(s.Close)
	c, err := api.New(api.Options{BaseURL: s.URL, Credentials: api.HeldSession("session", nil), MaxRetries: -1})
	rig.Must(t, err)
	files := packedBy(t, func(w *Writer) error { return w.Service(t.Context(), c, true) })
	only(t, files, "server/ready.json", "Code Detail Parts.Detail Parts.Part Warnings")
	only(t, files, "server/version.json", "Version")
	only(t, files, "server/settings.json", "named")
	only(t, files, "server/custody.json", "DataKeys.State KEK.Fingerprint KEK.Scheme")
	only(t, files, "server/authorities.json", "Authorities.State Authorities.Subject")
	of := func(prefix string) string {
		return strings.ReplaceAll(" .CertHash .Issuer .PublicKeyType .SerialNumber .StatusLabel .Subject", " ", " "+prefix)
	}
	only(t, files, "server/trusted-cas.json", "TrustedCAs.RevocationDigest"+of("TrustedCAs"))
	only(t, files, "server/trusted-servers.json", "TrustedServers.ServerName"+of("TrustedServers.Certificate"))
	only(t, files, "server/witness.json", "Logs.Conflict Logs.Origin")
	only(t, files, "files.json", "")
}

// TestEverySettingThatMayLeaveIsNamed fails if the key server's allow list gets a new setting, so that packing the
// setting is a decision.
func TestEverySettingThatMayLeaveIsNamed(t *testing.T) {
	for _, row := range keyserver.ConfigAllowList {
		names, known := settingNames[row.Tag]
		if !known || !slices.Equal(names, row.Attributes) {
			t.Errorf("settingNames has %q of %s, and the key server lets %q leave", names, row.Tag, row.Attributes)
		}
	}
	if len(settingNames) != len(keyserver.ConfigAllowList) {
		t.Errorf("settingNames has %d elements, and the key server's list %d", len(settingNames), len(keyserver.ConfigAllowList))
	}
}

// TestOnlyNamedFieldsOfAClusterArePacked: each text of each object, Pod and event is planted.
func TestOnlyNamedFieldsOfAClusterArePacked(t *testing.T) {
	p := planted[corev1.Pod]()
	var events []any
	for i, from := range []struct{ controller, component, reason string }{
		{"keyserver-operator", "", "Created"}, {"", "kubelet", "BackOff"}, {"kubelet", "", "Unhealthy"}, {"kubelet", "", "ProbeWarning"}, {"somebody", "", "Created"}, {"", "", "Created"},
	} {
		e := planted[corev1.Event]()
		e.ReportingController, e.Source.Component, e.Reason = from.controller, from.component, from.reason
		e.Message += "." + fmt.Sprint(i)
		events = append(events, e)
	}
	lists := map[string][]any{"/api/v1/namespaces/n/pods": {p}, "/api/v1/namespaces/n/events": events}
	for _, kind := range v1beta1.Kinds {
		o := kind.New()
		plant(reflect.ValueOf(o).Elem(), "")
		lists[cluster.PathIn(v1beta1.GroupVersion, kind)] = []any{o}
	}
	c := clusterOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items, ok := lists[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		raw, err := json.Marshal(map[string]any{"items": items})
		var answer any
		if err = errors.Join(err, json.Unmarshal(raw, &answer)); err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": unnamed(answer.(map[string]any)["items"])})
	})
	files := packedBy(t, func(w *Writer) error { return w.Cluster(t.Context(), c) })
	for _, kind := range v1beta1.Kinds {
		conditions := ".Conditions.Message .Conditions.Reason .Conditions.Status .Conditions.Type"
		only(t, files, "cluster/"+kind.Resource+".json", strings.ReplaceAll(conditions, ".Conditions", "Status.Conditions")+" Name Namespace")
	}
	var containers []string
	for _, all := range []string{"Status.InitContainerStatuses.", "Status.ContainerStatuses."} {
		for _, field := range strings.Fields("Image ImageID Name State.Waiting.Reason State.Waiting.Message State.Terminated.Reason" +
			" LastTerminationState.Waiting.Reason LastTerminationState.Waiting.Message LastTerminationState.Terminated.Reason") {
			containers = append(containers, all+field)
		}
	}
	only(t, files, "cluster/pods.json", "Name Spec.NodeName Status.Phase Status.Conditions.Message Status.Conditions.Reason Status.Conditions.Status Status.Conditions.Type "+strings.Join(containers, " "))
	only(t, files, "cluster/events.json", "InvolvedObject.Kind InvolvedObject.Name Message.0 Message.1")
}

// TestOnlyNamedAttributesOfALogArePacked checks that secrets outside of the allowed attributes are omitted.
func TestOnlyNamedAttributesOfALogArePacked(t *testing.T) {
	const base = `{"time":"2026-11-25T21:57:38.072421156Z","level":"WARN","msg":"it fails"`
	const place = "github.com/keyserver-operator/keyserver-operator/main.go:1"
	for _, tc := range []struct {
		line, want string
		leftOut    int
	}{
		{base + `,"requestId":"91684573c450aade","detail":"name: missing","took":120000,"replaced":false,"cause":null}`, base + `,"cause":null,"detail":"name: missing","requestId":"91684573c450aade","took":120000,"replaced":false}`, 0},
		{base + `,"password":"S3cret","Error":"S3cret","name":"S3cret","session":"S3cret","panic":"S3cret"}`, base + `}`, 5},
		{base + `,"headers":{"Authorization":["Bearer S3cret"]},"pin":12345678,"error":{"text":"S3cret"}}`, base + `}`, 3},
		{base + `,"keys":["a",["S3cret"]],"rows":[{"x":"S3cret"}],"rule":["a","b"]}`, base + `,"rule":["a","b"]}`, 2},
		{base + `,"key":"S3cret","keys":["S3cret"],"dataKey":"0123456789abcdef"}`, base + `,"dataKey":"0123456789abcdef"}`, 2},
		{base + `,"Role":{"name":"n","namespace":"s","uid":"S3cret"},"KeyServer":"S3cret"}`, base + `,"Role":{"namespace":"s","name":"n"}}`, 1},
		{base + `,"error":"Post \"https://u:S3cret@host:1/S3cret?S3cret\": EOF"}`, base + `,"error":"Post \"https://host:1\": EOF"}`, 0},
		{base + `,"stack":"goroutine 1 [running]:\nmain.f(S3cret)\n\t` + place + ` +0x1\n\t/S3cret/x.go:1 +0x1\n"}`, base + `,"stack":["` + place + `"]}`, 0},
		{"keyserver-operator: --kek: cannot be read at https://u:S3cret@h/S3cret\r", "keyserver-operator: --kek: cannot be read at https://h", 0},
		{"keyserver-agent: a bug in this program, please report it: S3cret", "keyserver-agent: a bug in this program, ", 1},
		{"\t" + place + " +0x1", place, 0},
		{"\t" + place + " S3cret", "", 1},
		{"\t/S3cret/main.go:1 +0x1", "", 1},
		{"main.f(0x53637265, S3cret)", "", 1},
		{`{"level":"INFO","msg":"S3cret"}`, "", 1},
		{`{"time":"S3cret","level":"INFO","msg":"x"}`, "", 1},
		{`{"time":"2026-11-25T21:57:38Z","level":"S3cret","msg":"x"}`, "", 1},
		{`{"time":"2026-11-25T21:57:38Z","level":"INFO","msg":{"S3cret":1}}`, "", 1},
		{`{"Time":"2026-11-25T21:57:38Z","Level":"INFO","Msg":"S3cret"}`, "", 1},
		{base + `} S3cret`, "", 1},
		{base + `,"error":"S3cret`, "", 1},
		{`S3cret ` + base + `}`, "", 1},
		{`[` + base + `,"error":"S3cret"}]`, "", 1},
		{`{"server":"https://x","sessionId":"S3cret"}`, "", 1}, // a session of keyserverctl
		{"S3cret", "", 1}, // a file with a password
		{"-----BEGIN PRIVATE KEY-----", "", 1},
		{"AGE-SECRET-KEY-1S3CRET", "", 1},
		{"password: S3cret\nAuthorization: Bearer S3cret", "", 2},
		{"", "", 0},
	} {
		got, leftOut := namedLog([]byte(tc.line + "\n"))
		if strings.TrimSuffix(string(got), "\n") != tc.want || leftOut != tc.leftOut {
			t.Errorf("of %q is packed %q, instead of %q; %d are left out, instead of %d", tc.line, got, tc.want, leftOut, tc.leftOut)
		}
	}
}

// TestOnlyNamedMetricsArePacked checks that other metrics and labels, help texts and invalid lines are omitted.
func TestOnlyNamedMetricsArePacked(t *testing.T) {
	const page = `# HELP keyserver_ready S3cret
# TYPE keyserver_ready gauge
# S3cret
keyserver_ready{part="database"} 1
keyserver_ready{part="database",password="S3cret"} 1
keyserver_build_info{version="https://u:S3cret@host/S3cret"} 1
go_goroutines 3
secret_total{part="S3cret"} 1
S3cret{part="x"} 1
`
	const want = `# TYPE go_goroutines untyped
go_goroutines 3
# TYPE keyserver_build_info untyped
keyserver_build_info{version="https://host"} 1
# TYPE keyserver_ready gauge
keyserver_ready{part="database"} 1
`
	if got, leftOut, err := namedMetrics([]byte(page)); err != nil || string(got) != want || leftOut != 3 {
		t.Errorf("of the metrics are left out %d: %v\n%s", leftOut, err, got)
	}
	if got, _, err := namedMetrics([]byte("keyserver_ready 1\nS3cret S3cret S3cret\n")); !errors.Is(err, errNoMetrics) || strings.Contains(string(got), "S3cret") {
		t.Errorf("of what is no page of metrics is packed %q: %v", got, err)
	}
}

// TestNothingThatIsPackedHasAKnownCredential checks that files, file names and errors contain no credential.
func TestNothingThatIsPackedHasAKnownCredential(t *testing.T) {
	for _, credential := range []string{"obGf2DRdPyXdH-8ikRtoW0zjUU-9n5t8", `a"b\c<d>&e/f`, "pässwörd+/="} {
		quoted, err := json.Marshal(credential)
		rig.Must(t, err)
		files := packedBy(t, func(w *Writer) error {
			w.Redact(credential[:4], credential, "") // one credential begins with another
			return errors.Join(w.JSON(credential, []string{credential}), w.Missing("server/login", errors.New("403: no account for <"+credential+">")),
				w.Log("log", []byte(`{"time":"2026-11-25T21:57:38Z","level":"INFO","msg":`+string(quoted)+"}\n"), errors.New(credential)))
		})
		for name, text := range files {
			if strings.Contains(name+text, credential) || strings.Contains(text, string(quoted[1:len(quoted)-1])) {
				t.Errorf("%s has it: %s", name, text)
			}
		}
		if !strings.Contains(files["log"], `"msg":"[left out]"`) || !strings.Contains(files["files.json"], `no account for \u003c[left out]\u003e`) {
			t.Errorf("the bundle has %q", files)
		}
	}
}
