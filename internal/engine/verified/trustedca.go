package verified

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/certtext"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// Evidence that a CA was added, in the list that is read after the write, strongest first.
const (
	MatchedByBody     = "certificate-body" // a listed CA has the sent DER
	MatchedByEcho     = "echoed-id"        // a listed CA has the id that the key server returned
	MatchedBySoleNew  = "sole-new-entry"   // the list has exactly one new CA
	listenerStatement = "both listeners read the list at each handshake, so the change applies from the next connection on"
)

// TrustedCAAdded is the result of adding a trusted CA.
type TrustedCAAdded struct {
	Saved             bool
	MatchedBy         string
	WasAlreadyPresent bool
	ListCountBefore   int
	ListCountAfter    int
	AppearedCount     int
	EchoedCount       int // only for information
	TrustedCA         *keyserver.Certificate
	Detail            string
}

// TrustedCARemoved is the result of removing a trusted CA.
type TrustedCARemoved struct {
	Gone            bool
	ID              keyserver.ID
	ListCountBefore int
	ListCountAfter  int
	EchoedObjects   *int
	TrustedCA       keyserver.Certificate // before the removal
	Detail          string
}

// TrustedCAs reads the list of trusted CAs.
func (s *Service) TrustedCAs(ctx context.Context, by keyserver.Caller) ([]keyserver.Certificate, error) {
	return s.ks.TrustedCAs(ctx, by)
}

// AddTrustedCA adds one CA certificate and verifies it by reading the list again.
func (s *Service) AddTrustedCA(ctx context.Context, by keyserver.Caller, der []byte) (TrustedCAAdded, error) {
	if err := refuseNoCA(der); err != nil {
		return TrustedCAAdded{}, err
	}
	var echoed []keyserver.ID
	return verifiedWrite[[]keyserver.Certificate, TrustedCAAdded]{
		read: func(ctx context.Context) ([]keyserver.Certificate, error) { return s.ks.TrustedCAs(ctx, by) },
		refuse: func(before []keyserver.Certificate) error {
			if ca, ok := findCA(before, func(c keyserver.Certificate) bool { return bytes.Equal(c.DER, der) }); ok {
				return fault.New(fault.AlreadyTrusted, "certificate is already trusted, with the certificateId %s", ca.ID.Base64())
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.Certificate) (err error) {
			echoed, err = s.ks.AddTrustedCA(ctx, by, der)
			return err
		},
		verdict: func(before, after []keyserver.Certificate) (TrustedCAAdded, error) {
			return judgeAddedCA(der, echoed, before, after)
		},
	}.do(ctx)
}

// RemoveTrustedCA removes a CA. It reads the list again and verifies that the CA is gone.
func (s *Service) RemoveTrustedCA(ctx context.Context, by keyserver.Caller, id keyserver.ID) (TrustedCARemoved, error) {
	if err := requireID("certificateId", id); err != nil {
		return TrustedCARemoved{}, err
	}
	hasID := func(c keyserver.Certificate) bool { return c.ID == id }
	var echoed []keyserver.ID
	return verifiedWrite[[]keyserver.Certificate, TrustedCARemoved]{
		read: func(ctx context.Context) ([]keyserver.Certificate, error) { return s.ks.TrustedCAs(ctx, by) },
		refuse: func(before []keyserver.Certificate) error {
			if _, ok := findCA(before, hasID); !ok {
				return fault.New(fault.NotTrusted, "no trusted CA has the certificateId %s; list them with GET /api/trusted-cas", id.Base64())
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.Certificate) (err error) {
			echoed, err = s.ks.RemoveTrustedCA(ctx, by, id)
			return err
		},
		verdict: func(before, after []keyserver.Certificate) (TrustedCARemoved, error) {
			ca, _ := findCA(before, hasID)
			n := len(echoed)
			r := TrustedCARemoved{ID: id, ListCountBefore: len(before), ListCountAfter: len(after), EchoedObjects: &n, TrustedCA: ca}
			if _, still := findCA(after, hasID); still {
				r.Detail = "the key server accepted the removal, but a fresh read still lists the CA"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone = true
			r.Detail = "a fresh read no longer lists the CA; " + listenerStatement + "; certificates enrolled under it stay enrolled"
			return r, nil
		},
	}.do(ctx)
}

// judgeAddedCA returns the verdict on an added CA, with the strongest evidence in the list after the write.
func judgeAddedCA(der []byte, echoed []keyserver.ID, before, after []keyserver.Certificate) (TrustedCAAdded, error) {
	r := TrustedCAAdded{ListCountBefore: len(before), ListCountAfter: len(after), EchoedCount: len(echoed)}
	var appeared []keyserver.Certificate
	for _, c := range after {
		if _, was := findCA(before, func(b keyserver.Certificate) bool { return b.ID == c.ID }); !was {
			appeared = append(appeared, c)
		}
	}
	r.AppearedCount = len(appeared)
	if ca, ok := findCA(after, func(c keyserver.Certificate) bool { return bytes.Equal(c.DER, der) }); ok {
		r.MatchedBy, r.TrustedCA = MatchedByBody, &ca
	} else if ca, ok := findCA(appeared, func(c keyserver.Certificate) bool { return len(c.DER) == 0 && containsID(echoed, c.ID) }); ok {
		r.MatchedBy, r.TrustedCA = MatchedByEcho, &ca
	} else if len(appeared) == 1 && len(appeared[0].DER) == 0 && len(echoed) == 0 {
		r.MatchedBy, r.TrustedCA = MatchedBySoleNew, &appeared[0]
	}
	if r.TrustedCA == nil {
		r.Detail = fmt.Sprintf("the key server accepted the certificate, but a fresh read of %d trusted CAs does not show it", len(after))
		return r, fault.New(fault.NotSaved, "%s", r.Detail)
	}
	r.Saved = true
	r.Detail = "a fresh read lists the CA, matched by " + r.MatchedBy + "; " + listenerStatement
	return r, nil
}

// refuseNoCA returns an error for input that is not exactly one CA certificate. A key server would store another
// certificate, or only the first one of a bundle, and trust no further CA.
func refuseNoCA(der []byte) error {
	if len(der) == 0 {
		return fault.New(fault.BadRequest, "certificate: must not be empty; send one DER certificate as base64")
	}
	cert, err := certtext.Certificate(der)
	if err != nil {
		return fault.New(fault.BadRequest, "certificate: %s; send one certificate in DER, not PEM and not a bundle", err).Because(err)
	}
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return fault.New(fault.BadRequest, "certificate: must be a CA certificate, but its basic constraints do not say CA")
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return fault.New(fault.BadRequest, "certificate: must be a CA certificate, but its key usage does not allow signing certificates")
	}
	return nil
}

func findCA(list []keyserver.Certificate, is func(keyserver.Certificate) bool) (keyserver.Certificate, bool) {
	for _, c := range list {
		if is(c) {
			return c, true
		}
	}
	return keyserver.Certificate{}, false
}

func containsID(ids []keyserver.ID, id keyserver.ID) bool {
	for _, i := range ids {
		if i == id {
			return true
		}
	}
	return false
}
