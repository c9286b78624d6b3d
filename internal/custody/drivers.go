package custody

// The services that can hold the key-encryption key, besides a local file:
// awskms://, azurekeyvault://, gcpkms:// and hashivault://. Each driver reads
// its credentials the way its cloud's own tools do.
import (
	_ "gocloud.dev/secrets/awskms"
	_ "gocloud.dev/secrets/azurekeyvault"
	_ "gocloud.dev/secrets/gcpkms"
	_ "gocloud.dev/secrets/hashivault"
)
