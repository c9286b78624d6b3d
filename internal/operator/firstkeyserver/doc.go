// Package firstkeyserver creates the KeyServer of a new installation. One file of manifests cannot contain it: a cluster
// accepts a custom resource only after the CRD of its kind.
package firstkeyserver
