package keyserver

// maxShownRecipient is the length of an X25519 recipient, or longer. A post-quantum
// recipient is 30 times as long.
const maxShownRecipient = 64

// ShortRecipient returns an age recipient in the form in which audit rows show it: cut if
// it is long.
func ShortRecipient(recipient string) string {
	if len(recipient) <= maxShownRecipient {
		return recipient
	}
	return recipient[:maxShownRecipient] + "..."
}
