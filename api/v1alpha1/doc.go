// Package v1alpha1 holds the custom resources of the group trust.keyserver.dev:
// KeyServer says how to reach one /api, the other kinds declare what should be
// true of the key server behind it.
//
// Everything that a schema or a CEL rule can refuse is refused at admission,
// with a message that says what to write instead; there is no webhook.
//
// +kubebuilder:object:generate=true
// +groupName=trust.keyserver.dev
package v1alpha1
