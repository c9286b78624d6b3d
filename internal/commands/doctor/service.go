package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
)

// soon is the remaining lifetime of a certificate below which doctor reports it.
const soon = 30 * 24 * time.Hour

// Server is a key server to check over /api.
type Server struct {
	*client.Client
	LoggedIn bool  // there is a session, so all checks are possible
	Refused  error // the error of a failed login
	Build    string
	Now      time.Time
}

// Service returns the checks of a key server that responds.
func Service(s Server) []Check {
	checks := []Check{{"service", s.service}}
	if s.Refused != nil {
		checks = append(checks, Check{"login", func(context.Context, func(string) error) (string, error) { return "", s.Refused }})
	}
	if s.LoggedIn {
		checks = append(checks, Check{"version", s.version}, Check{"custody", s.custody}, Check{"authority", s.authority}, Check{"trusted-cas", s.trusted}, Check{"peers", s.peers}, Check{"audit", s.audit})
	}
	return checks
}

func (s Server) service(ctx context.Context, found func(string) error) (string, error) {
	ready, err := s.GetReadiness(ctx)
	if err != nil && !client.IsCode(err, "NOT_READY") {
		return "", err
	}
	fine := 0
	for _, part := range ready.Parts {
		if part.Ready {
			fine++
			continue
		}
		if err := found(fmt.Sprintf("the part %s fails: %s", part.Part, part.Detail)); err != nil {
			return "", err
		}
	}
	holds := fmt.Sprintf("%d of %d parts are ready", fine, len(ready.Parts))
	for _, warning := range ready.Warnings {
		holds += "; warning: " + warning
	}
	return holds, nil
}

func (s Server) version(ctx context.Context, found func(string) error) (string, error) {
	v, err := s.GetVersion(ctx)
	if err != nil {
		return "", err
	}
	if v.Major == nil || v.Minor == nil || v.Build == nil {
		return "", errors.New("the key server does not report its release")
	}
	release := fmt.Sprintf("%d.%d.%d", *v.Major, *v.Minor, *v.Build)
	if release != s.Build {
		err = found(fmt.Sprintf("the key server is release %s, but this program is release %s; use the same release", release, s.Build))
	}
	return "the key server is release " + release, err
}

func (s Server) custody(ctx context.Context, found func(string) error) (string, error) {
	c, err := s.GetCustody(ctx)
	if err != nil {
		return "", err
	}
	if c.Rewrap.Refused > 0 {
		err = found(fmt.Sprintf("%d rows cannot be encrypted under the active data key, because they do not agree with their MACs; run keyserver-operator doctor on the database", c.Rewrap.Refused))
	}
	if err == nil && c.KEK.PreviousNeeded != nil && !*c.KEK.PreviousNeeded {
		err = found("--kek-previous is not needed any more: leave it out at the next start")
	}
	return fmt.Sprintf("%d of %d keys are under the active data key", c.Rewrap.Done, c.Rewrap.Total), err
}

func (s Server) authority(ctx context.Context, found func(string) error) (string, error) {
	list, err := s.ListAuthorities(ctx)
	if err != nil {
		return "", err
	}
	for _, a := range list.Authorities {
		if a.State == "active" && a.NotAfter.Sub(s.Now) < soon {
			err = found(fmt.Sprintf("%s expires on %s and was not replaced; see the log of the key server", a.Subject, a.NotAfter.Format(time.DateOnly)))
		}
	}
	return fmt.Sprintf("internal CAs: %d", len(list.Authorities)), err
}

func (s Server) trusted(ctx context.Context, found func(string) error) (string, error) {
	list, err := s.ListTrustedCAs(ctx, schema.TrustedCAsQuery{})
	if err != nil {
		return "", err
	}
	for _, ca := range list.TrustedCAs {
		if err := s.ends("the trusted CA", ca.Certificate, found); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("trusted CAs: %d", list.Count), nil
}

func (s Server) peers(ctx context.Context, found func(string) error) (string, error) {
	list, err := s.ListTrustedServers(ctx, schema.TrustedServersQuery{})
	if err != nil {
		return "", err
	}
	for _, p := range list.TrustedServers {
		if p.Certificate == nil {
			continue
		}
		if err := s.ends("the certificate of the peer", *p.Certificate, found); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("registered peers: %d", len(list.TrustedServers)), nil
}

// ends calls found if the certificate expires in less than soon.
func (s Server) ends(what string, c schema.Certificate, found func(string) error) error {
	if c.ExpirationDate == nil || c.Subject == nil || c.ExpirationDate.Sub(s.Now) >= soon {
		return nil
	}
	return found(fmt.Sprintf("%s %s expires on %s", what, *c.Subject, c.ExpirationDate.Format(time.DateOnly)))
}

func (s Server) audit(ctx context.Context, _ func(string) error) (string, error) {
	key, err := s.GetAuditKey(ctx)
	if err != nil {
		return "", err
	}
	verifier, err := note.NewVerifier(key.Key)
	if err != nil {
		return "", fmt.Errorf("the key of the audit tree is not valid: %w", err)
	}
	checkpoint, err := s.GetAuditCheckpoint(ctx)
	if err != nil {
		return "", err
	}
	if _, err := note.Open([]byte(checkpoint), note.VerifierList(verifier)); err != nil {
		return "", fmt.Errorf("the newest checkpoint is not signed by the key of GET /api/audit/key: %w", err)
	}
	return "the newest checkpoint is signed; to verify the rows, run audit verify", nil
}
