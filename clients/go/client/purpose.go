package client

import "context"

type purposeKey struct{}

const maxPurpose = 256

// For returns a context whose calls send a purpose (header X-Keyserver-For). The
// service writes it unverified to its audit log. A purpose of more than 256
// characters is truncated.
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

// OwnedBy returns a context whose calls mark the objects that they create with an owner
// (header X-Keyserver-Owner), in the transaction that creates them. It has no effect on
// calls that create no object with an owner.
func OwnedBy(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func ownerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
