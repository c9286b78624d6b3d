package keyserver

// maxShownRecipient is the number of bytes of a recipient that audit rows show. X25519 recipients fit; post-quantum
// ones are 30 times as long.
const maxShownRecipient = 64

// ShortRecipient returns an age recipient as audit rows show it: truncated if it is longer than maxShownRecipient.
func ShortRecipient(recipient string) string {
	if len(recipient) <= maxShownRecipient {
		return recipient
	}
	return recipient[:maxShownRecipient] + "..."
}
