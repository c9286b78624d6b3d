// Package v1beta1 has the custom resources of the group trust.keyserver.dev. A KeyServer says how to reach the API of
// one key server. The other kinds declare the state of that key server.
//
// The API server rejects all input that a schema or a CEL rule can reject. The message says what to write instead.
// There is no webhook.
//
// +kubebuilder:object:generate=true
// +groupName=trust.keyserver.dev
package v1beta1
