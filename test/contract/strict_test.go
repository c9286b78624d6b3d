package contract

import (
	"net/http"
	"testing"
)

// A filter by the id zero is refused, and does not select everything (contract 3.1).
func TestFiltersByZero(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		admin := s.AsAdmin(t)
		for _, path := range []string{
			"/api/sessions?principalId=0000000000000000",
			"/api/audit?principalId=0",
			"/api/audit?session=0000000000000000",
			"/api/audit?until=0001-01-01T00:00:00Z",
			"/api/approvals?asker=0000000000000000",
			"/api/principal-trusts?principalId=0000000000000000",
			"/api/principal-trusts?trustedServerSystemId=0",
			"/api/templated-directories?aclTemplateId=0000000000000000",
		} {
			s.Refused(t, admin, "GET", path, nil, http.StatusBadRequest, "BAD_REQUEST")
		}
		s.OK(t, admin, "GET", "/api/sessions?after=0000000000000000", nil)
	})
}
