package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "trust.keyserver.dev", Version: "v1beta1"}

// Deprecated is the former version. The API server still serves it, with the same schemas, and warns its users.
var Deprecated = schema.GroupVersion{Group: GroupVersion.Group, Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	for _, k := range Kinds {
		scheme.AddKnownTypes(GroupVersion, k.New(), k.NewList())
	}
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme registers the kinds with a scheme.
var AddToScheme = schemeBuilder.AddToScheme
