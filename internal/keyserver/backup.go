package keyserver

// maxShownRecipient is a whole recipient of X25519. One that resists quantum computers is
// 30 times as long.
const maxShownRecipient = 64

// ShortRecipient is how a row of the audit trail names a recipient of age.
func ShortRecipient(recipient string) string {
	if len(recipient) <= maxShownRecipient {
		return recipient
	}
	return recipient[:maxShownRecipient] + "..."
}
