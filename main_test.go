package main

import (
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/secrets"
)

func TestCloudDrivers(t *testing.T) {
	for _, scheme := range []string{"awskms", "azurekeyvault", "base64key", "gcpkms", "hashivault"} {
		if !secrets.DefaultURLMux().ValidKeeperScheme(scheme) {
			t.Errorf("no driver opens a key-encryption key with %s://", scheme)
		}
	}
	for _, scheme := range []string{"azblob", "file", "gs", "s3"} {
		if !blob.DefaultURLMux().ValidBucketScheme(scheme) {
			t.Errorf("no driver opens a bucket with %s://", scheme)
		}
	}
}
