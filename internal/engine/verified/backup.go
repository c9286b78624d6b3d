package verified

import (
	"context"
	"io"
	"strings"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// CreateBackup writes a backup that only the given age recipient can open. It reads nothing back: the end of a backup
// shows that it is complete.
func (s *Service) CreateBackup(ctx context.Context, by keyserver.Caller, recipient string, to io.Writer) error {
	if of, err := age.ParseRecipients(strings.NewReader(recipient)); err != nil || len(of) != 1 {
		return fault.New(fault.BadRequest, "recipient: must be exactly one age recipient; age-keygen -y prints the recipient of an identity file")
	}
	return s.ks.CreateBackup(ctx, by, recipient, to)
}
