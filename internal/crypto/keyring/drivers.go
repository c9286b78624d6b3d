package keyring

import (
	// The services that can hold the key-encryption key, besides a local file.
	// Importing a driver registers its scheme: awskms://, azurekeyvault://,
	// gcpkms:// and hashivault://. Each reads its credentials the way its
	// service's own tools do.
	_ "gocloud.dev/secrets/awskms"
	_ "gocloud.dev/secrets/azurekeyvault"
	_ "gocloud.dev/secrets/gcpkms"
	_ "gocloud.dev/secrets/hashivault"
)
