// Package v1alpha1 has the custom resources of the group trust.keyserver.dev. A KeyServer
// says how to reach one /api. The other kinds declare the state of the key server behind
// it.
//
// The API server rejects everything that a schema or a CEL rule can reject, with a
// message that says what to write instead. There is no webhook.
//
// +kubebuilder:object:generate=true
// +groupName=trust.keyserver.dev
package v1alpha1
