// Package clouddrivers registers the drivers of gocloud.dev for key management services and buckets. Only main.go
// imports it, so only keyserver-operator links the SDKs of AWS, Azure and Google Cloud. Packages that open a URL, such
// as keyring and blobstore, import gocloud.dev without these drivers. A program or test that does not import this
// package can open only local keys, KMS plugins and directories.
//
// Each driver finds its credentials in the same way as the official tools of its cloud service.
package clouddrivers

import (
	_ "gocloud.dev/blob/azureblob"        // azblob://
	_ "gocloud.dev/blob/gcsblob"          // gs://
	_ "gocloud.dev/blob/s3blob"           // s3://
	_ "gocloud.dev/secrets/awskms"        // awskms://
	_ "gocloud.dev/secrets/azurekeyvault" // azurekeyvault://
	_ "gocloud.dev/secrets/gcpkms"        // gcpkms://
	_ "gocloud.dev/secrets/hashivault"    // hashivault://
)
