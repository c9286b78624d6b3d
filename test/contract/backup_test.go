package contract

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/store/backup"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
)

// TestBackup checks POST /api/backups (contract 17.10): the required role, the recipient, and that the audit
// row precedes the backup. internal/store/backup and test/backup check the content.
func TestBackup(t *testing.T) {
	on(t, func(t *testing.T, s *subject) {
		const backups = "/api/backups"
		identity, err := age.GenerateX25519Identity()
		rig.Must(t, err)
		in := rig.Object{"recipient": identity.Recipient().String()}
		s.Refused(t, "", "POST", backups, in, http.StatusUnauthorized, "SESSION_NOT_FOUND")
		for _, role := range []keyserver.ID{keyserver.RoleAuditor, keyserver.RoleSecurityOfficer, keyserver.RoleEncryptor} {
			s.Refused(t, s.with(t, role), "POST", backups, in, http.StatusForbidden, "ACCESS_DENIED")
		}
		admin := s.AsAdmin(t)
		for _, wrong := range []string{"", "age1", "nobody", identity.String(), strings.Replace(in["recipient"].(string), "age1", "age1x", 1), in["recipient"].(string) + " "} {
			a := s.Refused(t, admin, "POST", backups, rig.Object{"recipient": wrong}, http.StatusBadRequest, "BAD_REQUEST")
			if detail := a.Text(t, "detail"); !strings.Contains(detail, "recipient") || strings.Contains(detail, "SECRET") {
				t.Errorf("%q: %s", wrong, detail)
			}
		}
		s.Refused(t, admin, "POST", backups, rig.Object{"recipient": in["recipient"], "includeKek": true}, http.StatusBadRequest, "BAD_REQUEST")
		s.Refused(t, admin, "POST", "/api/approvals", rig.Object{"method": "POST", "path": backups, "body": in, "reason": "night"}, http.StatusBadRequest, "BAD_REQUEST")

		a := s.Send(t, admin, "POST", backups, in)
		if a.Status != http.StatusOK || a.Header.Get("Content-Type") != "application/octet-stream" {
			t.Fatalf("%d %s", a.Status, a.Header)
		}
		r, err := backup.Open(bytes.NewReader(a.Raw), strings.NewReader(identity.String()))
		rig.Must(t, err)
		defer r.Close()
		if r.Head.System != 1 || r.Head.ServerName != "test" || r.Head.Last == 0 || r.Head.KEK.Scheme != "base64key" {
			t.Errorf("%+v", r.Head)
		}
		rows := s.OK(t, s.with(t, keyserver.RoleAuditor), "GET", s.trail("operation=makeBackup&outcome=allowed"), nil).List(t, "entries")
		if len(rows) != 1 || rows[0]["object"] != in["recipient"] {
			t.Fatalf("rows of the audit trail: %v", rows)
		}
		if seq, err := strconv.ParseInt(rig.Number(rows[0]["seq"]), 10, 64); err != nil || seq > r.Head.Last {
			t.Errorf("its row %d is not in the backup, which ends with %d, %v", seq, r.Head.Last, err)
		}
	})
}
