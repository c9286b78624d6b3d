package verified

import (
	"context"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// requireChoice returns an error unless the choice has either a key or a key lineage.
func requireChoice(choice keyserver.KeyChoice) error {
	switch {
	case choice.Key != "" && choice.Lineage != "":
		return fault.New(fault.BadRequest, "lineage: sent together with ttag; send only one of them")
	case choice.Key == "" && choice.Lineage == "":
		return fault.New(fault.BadRequest, "ttag: missing; send ttag or lineage")
	default:
		return nil
	}
}

// MAC computes the HMAC-SHA384 of the message with the newest key of the lineage.
func (s *Service) MAC(ctx context.Context, by keyserver.Caller, r keyserver.MACRequest) (keyserver.MAC, error) {
	if err := requireLink("lineage", r.Lineage); err != nil {
		return keyserver.MAC{}, err
	}
	return s.ks.MAC(ctx, by, r)
}

// VerifyMAC reports whether the MAC belongs to the message.
func (s *Service) VerifyMAC(ctx context.Context, by keyserver.Caller, r keyserver.MACCheck) (keyserver.MACVerdict, error) {
	if err := requireChoice(r.KeyChoice); err != nil {
		return keyserver.MACVerdict{}, err
	}
	return s.ks.VerifyMAC(ctx, by, r)
}

// MACBatch computes the MACs of many messages. It returns one result for each message.
func (s *Service) MACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACItem) ([]keyserver.MACResult, error) {
	for _, item := range items {
		if err := requireLink("lineage", item.Lineage); err != nil {
			return nil, err
		}
	}
	results, err := s.ks.MACBatch(ctx, by, items)
	return complete(results, len(items), err)
}

// VerifyMACBatch verifies the MACs of many messages. It returns one result for each MAC.
func (s *Service) VerifyMACBatch(ctx context.Context, by keyserver.Caller, items []keyserver.MACCheck) ([]keyserver.MACVerdictResult, error) {
	for _, item := range items {
		if err := requireChoice(item.KeyChoice); err != nil {
			return nil, err
		}
	}
	results, err := s.ks.VerifyMACBatch(ctx, by, items)
	return complete(results, len(items), err)
}

// complete returns the results. It returns an error if err is not nil or there are not n results.
func complete[T any](results []T, n int, err error) ([]T, error) {
	if err == nil && len(results) != n {
		err = fault.New(fault.OpFailed, "the key server returned %d results for %d items", len(results), n)
	}
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Encrypt encrypts under an AES-256 key.
func (s *Service) Encrypt(ctx context.Context, by keyserver.Caller, r keyserver.Encryption) (keyserver.Ciphertext, error) {
	if err := requireChoice(r.KeyChoice); err != nil {
		return keyserver.Ciphertext{}, err
	}
	return s.ks.Encrypt(ctx, by, r)
}

// Decrypt decrypts a ciphertext that Encrypt returned.
func (s *Service) Decrypt(ctx context.Context, by keyserver.Caller, r keyserver.Decryption) (keyserver.Plaintext, error) {
	if err := requireChoice(r.KeyChoice); err != nil {
		return keyserver.Plaintext{}, err
	}
	return s.ks.Decrypt(ctx, by, r)
}
