// Package export converts the content of a key server to manifests. If the manifests are applied, their objects adopt
// the content without changing it. Content that no manifest can declare exactly is left out, with the reason.
package export

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	apiclient "github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/manifest"
)

// API has the read requests that an export sends to a key server.
type API interface {
	ListTrustedCAs(ctx context.Context, in schema.TrustedCAsQuery) (schema.TrustedCAList, error)
	ListRevocationIssuers(ctx context.Context) (schema.RevocationIssuerList, error)
	ListTrustedServers(ctx context.Context, in schema.TrustedServersQuery) (schema.TrustedServerList, error)
	ListPrincipalTrusts(ctx context.Context, in schema.PrincipalTrustsQuery) (schema.PrincipalTrustList, error)
	ListOperations(ctx context.Context) (schema.OperationList, error)
	ListRoles(ctx context.Context) (schema.RoleList, error)
	ListACLTemplates(ctx context.Context, in schema.ACLTemplateQuery) (schema.ACLTemplateList, error)
	ListACLTemplateMembers(ctx context.Context, in schema.ByID) (schema.TemplateMemberList, error)
	ListTemplatedDirectories(ctx context.Context, in schema.TemplatedDirectoryQuery) (schema.TemplatedDirectoryList, error)
	ListKeys(ctx context.Context, in schema.KeyQuery) (schema.KeyListing, error)
	GetACL(ctx context.Context, in schema.KeyRequest) (schema.ACLResponse, error)
	GetCurrentSession(ctx context.Context) (schema.Session, error)
	ListPrincipals(ctx context.Context, in schema.PrincipalQuery) (schema.PrincipalPage, error)
	FindCertificatesByTransportPrincipal(ctx context.Context, in schema.CertificatesRequest) (schema.TransportCertificates, error)
	LookUpPrincipals(ctx context.Context, in schema.LookupPrincipalsRequest) (schema.PrincipalsFound, error)
	ListOwners(ctx context.Context, in schema.OwnerQuery) (schema.OwnerList, error)
}

var _ API = (*apiclient.Client)(nil)

// Options select the objects to export, and the target of the manifests.
type Options struct {
	// Admin manages roles and Officer manages trust. Both may be the same login.
	Admin, Officer API
	Namespace      string
	KeyServer      string   // name in keyServerRef
	Kinds          []string // subset of the variable Kinds; empty means all
}

// Kinds are the kinds that can be exported, in the order of their manifests. A kind comes after the kinds that it
// needs.
var Kinds = managedKinds()

func managedKinds() (names []string) {
	for _, k := range v1beta1.Kinds {
		if k.Managed() {
			names = append(names, k.Name)
		}
	}
	return names
}

// collector reads the objects of one kind from the key server.
type collector struct {
	read func(*exporter, context.Context) ([]candidate, error)
	feed string // the kind in the change feed and in owner marks
}

// collectors has one collector for each kind. Each file registers its own.
var collectors = map[string]collector{}

// LeftOut is an object of the key server, or a part of one, that the export does not declare.
type LeftOut struct {
	What string
	Part string // empty if the entire object is left out
	Why  string
}

// String formats the omission as one line of text.
func (l LeftOut) String() string {
	if l.Part == "" {
		return fmt.Sprintf("left out: %s: %s", l.What, l.Why)
	}
	return fmt.Sprintf("exported without %s: %s: %s", l.Part, l.What, l.Why)
}

// Export is the content of a key server as manifests.
type Export struct {
	Objects []*unstructured.Unstructured
	// Owners has a text about the owner of each manifest's external object. It is empty if the key server does not support
	// owner marks.
	Owners  map[*unstructured.Unstructured]string
	LeftOut []LeftOut
}

// exporter collects the objects of one export.
type exporter struct {
	Options
	schemas *manifest.Schemas
	people  *people
	out     Export
	// peers are the names of the TrustedServers in this export.
	peers map[schema.SystemID]string
}

// Collect reads the key server. Two exports of the same content are equal.
func Collect(ctx context.Context, o Options) (*Export, error) {
	schemas, err := manifest.NewSchemas()
	if err != nil {
		return nil, err
	}
	e := &exporter{Options: o, schemas: schemas, people: &people{api: o.Admin}, peers: map[schema.SystemID]string{}}
	e.out.Owners = map[*unstructured.Unstructured]string{}
	for _, kind := range Kinds {
		if len(o.Kinds) > 0 && !slices.Contains(o.Kinds, kind) {
			continue
		}
		from, known := collectors[kind]
		if !known {
			return nil, fmt.Errorf("kind %s has no exporter", kind)
		}
		found, err := from.read(e, ctx)
		if err != nil {
			return nil, fmt.Errorf("read the objects of kind %s: %w", kind, err)
		}
		if err := e.add(ctx, kind, from.feed, found); err != nil {
			return nil, err
		}
	}
	return &e.out, nil
}

// candidate is a future manifest without its name.
type candidate struct {
	what   string       // for messages
	title  string       // the name of the manifest is made from it
	id     string       // distinguishes candidates with the same title
	marked schema.HexID // id of the external object in owner marks
	object client.Object
	// spares are the optional parts: they can be declared differently or left out.
	spares []optionalPart
	// named is called with the name if the manifest is part of the export.
	named func(name string)
	// cannot is the reason why no manifest can declare the candidate, or empty.
	cannot string
}

// optionalPart is an optional part of a candidate. If the schema rejects it, the part is changed or removed, and the candidate
// is validated again.
type optionalPart struct {
	field string // field path that an error about this part contains
	part  string // name of the part in messages; empty if without declares it differently
	// without changes or removes the part as the error requires. It returns false if it changes nothing.
	without func(refusal string) bool
}

// once returns a spare whose part can be removed only once.
func once(field, part string, without func()) optionalPart {
	taken := false
	return optionalPart{field: field, part: part, without: func(string) bool {
		if taken {
			return false
		}
		taken = true
		without()
		return true
	}}
}

// add names the candidates of one kind, and adds those that a kube-apiserver would admit to the export.
func (e *exporter) add(ctx context.Context, kind, feed string, found []candidate) error {
	owners, err := e.owners(ctx, feed, len(found))
	if err != nil {
		return err
	}
	names := unique(kind, found)
	made := map[string]*unstructured.Unstructured{}
	for i, c := range found {
		if c.cannot != "" {
			e.leaveOut(LeftOut{What: c.what, Why: c.cannot})
			continue
		}
		c.object.SetName(names[i])
		c.object.SetNamespace(e.Namespace)
		u, lost, refusal, err := e.checked(ctx, kind, c)
		if err != nil {
			return err
		}
		if refusal != nil {
			e.leaveOut(LeftOut{What: c.what, Why: refusal.Error()})
			continue
		}
		e.leaveOut(lost...)
		made[names[i]] = u
		if owners != nil {
			e.out.Owners[u] = owners[c.marked]
		}
		if c.named != nil {
			c.named(names[i])
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if made[name] != nil {
			e.out.Objects = append(e.out.Objects, made[name])
		}
	}
	return nil
}

func (e *exporter) leaveOut(parts ...LeftOut) { e.out.LeftOut = append(e.out.LeftOut, parts...) }

// checked converts the object to a manifest, sets the defaults, and validates it like a kube-apiserver. After an error,
// checked tries again without the spares that the error names. lost lists the removed parts.
func (e *exporter) checked(ctx context.Context, kind string, c candidate) (u *unstructured.Unstructured, lost []LeftOut, refusal, err error) {
	for {
		if u, err = e.toManifest(kind, c.object); err != nil {
			return nil, nil, nil, err
		}
		completed := u.DeepCopy()
		if refusal = e.schemas.Complete(completed); refusal == nil {
			refusal = e.schemas.Validate(ctx, completed, nil)
		}
		if refusal == nil {
			return u, lost, nil, nil
		}
		at := slices.IndexFunc(c.spares, func(s optionalPart) bool {
			return strings.Contains(refusal.Error(), s.field) && s.without(refusal.Error())
		})
		if at < 0 {
			return u, nil, refusal, nil
		}
		if part := c.spares[at].part; part != "" {
			lost = append(lost, LeftOut{What: c.what, Part: part, Why: refusal.Error()})
		}
	}
}

// toManifest converts obj to a manifest. It omits fields that users do not write, such as the status.
func (e *exporter) toManifest(kind string, obj client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	spec, is := content["spec"].(map[string]any)
	if !is {
		return nil, errors.New("an object has no spec")
	}
	spec["keyServerRef"] = map[string]any{"name": e.KeyServer}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": obj.GetName(), "namespace": obj.GetNamespace()},
		"spec":     spec,
	}}, nil
}

// YAML writes the manifests as YAML documents.
func (x *Export) YAML(out io.Writer) error {
	var b bytes.Buffer
	for _, u := range x.Objects {
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return err
		}
		b.WriteString("---\n")
		if owner, kept := x.Owners[u]; kept {
			b.WriteString("# " + cmp.Or(owner, "no owner mark") + "\n")
		}
		b.Write(text)
	}
	_, err := out.Write(b.Bytes())
	return err
}

// maxTitle is short enough that a title and an id together are a valid label value.
const maxTitle = 40

// unique returns a name for each candidate, made from its title. If two names are equal or a title gives no name, two
// dashes and the id are added. A title never gives two dashes, so such a name is unique.
func unique(kind string, found []candidate) []string {
	names := make([]string, len(found))
	times := map[string]int{}
	for i, c := range found {
		names[i] = slug(c.title)
		times[names[i]]++
	}
	for i, name := range names {
		if name == "" {
			name = strings.ToLower(kind)
		} else if times[name] == 1 {
			continue
		}
		names[i] = name + "--" + found[i].id
	}
	return names
}

// slug returns a DNS label of the title's letters and digits, with single dashes between words.
func slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == maxTitle {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
