package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/config"
)

// Schemas has the custom resource definitions of this build.
type Schemas struct {
	kinds map[string]*kindSchema
}

// kindSchema has the schema and the rules of one kind.
type kindSchema struct {
	namespaced bool
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// NewSchemas reads the definitions that are embedded in the binary.
func NewSchemas() (*Schemas, error) {
	s := &Schemas{kinds: map[string]*kindSchema{}}
	crds, err := config.CRDs()
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if err := s.add(crd); err != nil {
			return nil, fmt.Errorf("%s: %w", crd.Name, err)
		}
	}
	return s, nil
}

func (s *Schemas) add(crd *apiextensionsv1.CustomResourceDefinition) error {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == v1beta1.GroupVersion.Version
	})
	if i < 0 {
		return errors.New("has no version " + v1beta1.GroupVersion.Version)
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, props, nil); err != nil {
		return err
	}
	k := &kindSchema{namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
	var err error
	if k.structural, err = structuralschema.NewStructural(props); err != nil {
		return err
	}
	if k.values, _, err = validation.NewSchemaValidator(props); err != nil {
		return err
	}
	k.rules = cel.NewValidator(k.structural, true, celconfig.PerCallLimit)
	s.kinds[crd.Spec.Names.Kind] = k
	return nil
}

// Recognize returns an error for an unknown apiVersion or kind. It replaces the deprecated apiVersion by the present one,
// which has the same schemas.
func (s *Schemas) Recognize(u *unstructured.Unstructured) error {
	switch u.GetAPIVersion() {
	case v1beta1.Deprecated.String():
		u.SetAPIVersion(v1beta1.GroupVersion.String())
	case v1beta1.GroupVersion.String():
	default:
		return fmt.Errorf("apiVersion: %q is unknown; use %s (%s is deprecated)", u.GetAPIVersion(), v1beta1.GroupVersion, v1beta1.Deprecated)
	}
	if s.kinds[u.GetKind()] != nil {
		return nil
	}
	var names []string
	for name := range s.kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("kind: %q is unknown; %s has %s", u.GetKind(), v1beta1.GroupVersion, strings.Join(names, ", "))
}

// Namespaced reports whether objects of a kind belong to a namespace.
func (s *Schemas) Namespaced(kind string) bool {
	return s.kinds[kind] != nil && s.kinds[kind].namespaced
}

// Complete rejects unknown fields, sets the defaults, and removes the status.
func (s *Schemas) Complete(u *unstructured.Unstructured) error {
	k := s.kinds[u.GetKind()]
	if err := checkMetadataType(u); err != nil {
		return err // the code below would drop a field of a wrong type, and report it as missing or not at all
	}
	unknown := pruning.PruneWithOptions(u.Object, k.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	_, inMeta := objectmeta.CoerceWithOptions(nil, u.Object, k.structural, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if all := slices.Concat(unknown, inMeta); len(all) > 0 {
		slices.Sort(all)
		return fmt.Errorf("%s: no such field", strings.Join(slices.Compact(all), ", "))
	}
	delete(u.Object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, k.structural)
	defaulting.Default(u.Object, k.structural)
	delete(u.Object, "status") // the defaults include a status
	return nil
}

// Validate checks an object after Complete. old is the object in the cluster, or nil. Immutable fields must be equal in
// both.
func (s *Schemas) Validate(ctx context.Context, u, old *unstructured.Unstructured) error {
	k := s.kinds[u.GetKind()]
	errs := apivalidation.ValidateObjectMetaAccessor(u, k.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if k.namespaced {
		for _, says := range utilvalidation.IsDNS1123Label(u.GetNamespace()) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "namespace"), u.GetNamespace(), says))
		}
	}
	var before map[string]any
	if old != nil {
		before = old.Object
		errs = append(errs, validation.ValidateCustomResourceUpdate(nil, u.Object, before, k.values)...)
	} else {
		errs = append(errs, validation.ValidateCustomResource(nil, u.Object, k.values)...)
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, u.Object)...)
	if len(errs) == 0 && k.rules != nil { // the rules assume that the object matches the schema
		var found any
		if before != nil {
			found = before
		}
		said, _ := k.rules.Validate(ctx, nil, k.structural, u.Object, found, celconfig.RuntimeCELCostBudget)
		errs = append(errs, said...)
	}
	return sentence(errs)
}

// sentence joins errors to one error without the invalid values: a value may be a secret, pasted by mistake.
func sentence(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	var says []string
	for _, e := range errs {
		detail := e.Detail
		switch e.Type {
		case field.ErrorTypeRequired:
			detail = strings.TrimSuffix("is missing: "+detail, ": ")
		case field.ErrorTypeDuplicate:
			detail = "occurs twice"
		case field.ErrorTypeForbidden:
			detail = "must not be set: " + detail
		case field.ErrorTypeNotSupported:
			detail = "is not one of the supported values" + strings.TrimPrefix(detail, "supported values")
		}
		if says = append(says, e.Field+": "+detail); len(says) == 8 {
			break
		}
	}
	slices.Sort(says)
	return errors.New(strings.Join(slices.Compact(says), "; "))
}
