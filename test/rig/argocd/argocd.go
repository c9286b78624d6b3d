// Package argocd computes the health of objects like Argo CD, with the scripts of config/argocd. It uses the
// Lua interpreter of Argo CD and only the libraries that Argo CD opens.
package argocd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// Health is the result of a script.
type Health struct{ Status, Message string }

// The states of Argo CD that a script may return.
const (
	Healthy     = "Healthy"
	Progressing = "Progressing"
	Degraded    = "Degraded"
	Suspended   = "Suspended"
)

// Key returns the key of a kind's health script in Argo CD's ConfigMap.
func Key(group, kind string) string { return "resource.customizations.health." + group + "_" + kind }

// ConfigMap returns the part of Argo CD's ConfigMap that config/argocd contains.
func ConfigMap(t testing.TB) *corev1.ConfigMap {
	t.Helper()
	root, err := rig.Root()
	rig.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "config", "argocd", "argocd-cm.yaml"))
	rig.Must(t, err)
	m := &corev1.ConfigMap{}
	rig.Must(t, yaml.UnmarshalStrict(text, m))
	return m
}

// Judge runs the script of the object's kind.
func Judge(t testing.TB, m *corev1.ConfigMap, object *unstructured.Unstructured) Health {
	t.Helper()
	kind := object.GroupVersionKind()
	script, ok := m.Data[Key(kind.Group, kind.Kind)]
	if !ok {
		t.Fatalf("config/argocd has no script of %s", kind.Kind)
	}
	h, err := run(script, object.Object)
	if err != nil {
		t.Fatalf("%s %s: %v", kind.Kind, object.GetName(), err)
	}
	return h
}

func run(script string, object map[string]any) (Health, error) {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(library.open), Protect: true}, lua.LString(library.name)); err != nil {
			return Health{}, err
		}
	}
	l.SetGlobal("obj", value(l, object))
	if err := l.DoString(script); err != nil {
		return Health{}, err
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return Health{}, fmt.Errorf("the script answers %s", l.Get(-1).Type())
	}
	h := Health{Status: lua.LVAsString(answer.RawGetString("status")), Message: lua.LVAsString(answer.RawGetString("message"))}
	if !slices.Contains([]string{Healthy, Progressing, Degraded, Suspended}, h.Status) {
		return h, fmt.Errorf("the script answers the status %q", h.Status)
	}
	return h, nil
}

// value converts a part of an object into a Lua value.
func value(l *lua.LState, of any) lua.LValue {
	switch of := of.(type) {
	case bool:
		return lua.LBool(of)
	case int64:
		return lua.LNumber(of)
	case float64:
		return lua.LNumber(of)
	case string:
		return lua.LString(of)
	case []any:
		table := l.CreateTable(len(of), 0)
		for _, item := range of {
			table.Append(value(l, item))
		}
		return table
	case map[string]any:
		table := l.CreateTable(0, len(of))
		for key, item := range of {
			table.RawSetString(key, value(l, item))
		}
		return table
	default:
		return lua.LNil
	}
}
