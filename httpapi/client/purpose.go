package client

import "context"

type purposeKey struct{}

// maxPurpose is how many characters of a purpose the service takes.
const maxPurpose = 256

// For has the calls that are made with the context say what they are made for
// (header X-Keyserver-For). It goes to the audit trail of the service, where
// nobody checks it. What is longer than 256 characters is cut.
func For(ctx context.Context, purpose string) context.Context {
	if runes := []rune(purpose); len(runes) > maxPurpose {
		purpose = string(runes[:maxPurpose])
	}
	return context.WithValue(ctx, purposeKey{}, purpose)
}

func purposeOf(ctx context.Context) string {
	purpose, _ := ctx.Value(purposeKey{}).(string)
	return purpose
}

type ownerKey struct{}

// OwnedBy has what the calls made with the context make marked as the owner's
// (header X-Keyserver-Owner), in the transaction that makes it. Calls that make
// nothing which can have an owner are as they are.
func OwnedBy(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func ownerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
