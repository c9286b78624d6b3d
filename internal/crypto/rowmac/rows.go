package rowmac

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/keyserver-operator/keyserver-operator/internal/crypto/password"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// DataKeySetting is the only setting without a MAC, because it contains the MAC keys. The key-encryption key protects
// it.
const DataKeySetting = "dataKey"

// Principal encodes a principal with its roles, groups, identity and delegates.
func Principal(p keyserver.Principal, passwordHash string) *Row {
	r := principal(p, passwordHash)
	if lasting := password.Lasting(passwordHash); lasting != passwordHash {
		r.lasting = principal(p, lasting).encoded
	}
	return r
}

func principal(p keyserver.Principal, passwordHash string) *Row {
	r := NewRow("principals", p.ID.Hex(), p.ID[:]).Key(p.ID).Int(int64(p.System)).Text(string(p.Type)).Text(p.Name).Int(int64(p.Flags)).
		Text(passwordHash).set(p.Roles).set(p.Groups)
	if p.Identity == nil {
		r.List(0)
	} else {
		r.List(1).Text(p.Identity.Issuer).Text(p.Identity.Subject).texts(p.Identity.Audiences)
	}
	if len(p.Delegates) > 0 { // otherwise, the encoding is the same as in versions without delegates
		r.set(p.Delegates)
	}
	return r
}

// Role encodes a role with its operations.
func Role(role keyserver.Role) *Row {
	return NewRow("roles", role.ID.Hex(), role.ID[:]).Key(role.ID).Text(role.Name).Int(number(role.BuiltIn)).set(role.Operations)
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// KeyRow is a stored key with its ACL. Purged contains the ACL entries that were removed together with a peer.
type KeyRow struct {
	ID        keyserver.ID
	Algorithm keyserver.Algorithm
	KeyBytes  int
	Wrapped   []byte
	ACL       keyserver.ID
	CreatedAt time.Time
	Life      keyserver.KeyLife
	Entries   []keyserver.ACLEntry
	Purged    []keyserver.ACLEntry
}

// StoredKey encodes a key. It does not encode the use counters of ACL entries, because each use changes them.
func StoredKey(k KeyRow) *Row {
	r := NewRow("stored_keys", k.ID.Hex(), k.ID[:]).Key(k.ID).Text(string(k.Algorithm)).Int(int64(k.KeyBytes)).Bytes(k.Wrapped).
		Key(k.ACL).Time(k.CreatedAt)
	r.entries(k.Entries).entries(k.Purged)
	if k.Life != keyserver.FirstLife(k.ID) { // otherwise, the encoding is the same as in versions without life cycles
		r.Text(string(k.Life.State)).Key(k.Life.Lineage).Int(int64(k.Life.Generation)).Int(number(k.Life.Exportable)).
			Time(k.Life.StateAt).Time(k.Life.DestroyAt)
	}
	return r
}

// KeyRotation encodes the rotation schedule of a key lineage, and the time of its next
// action.
func KeyRotation(lineage keyserver.ID, k keyserver.KeyRotation, due time.Time) *Row {
	return NewRow("key_rotations", lineage.Hex(), lineage[:]).Key(lineage).Int(int64(k.Every)).Int(int64(k.VerifyOnly)).Int(int64(k.DestroyAfter)).Time(due)
}

func (r *Row) entries(list []keyserver.ACLEntry) *Row {
	list = slices.SortedFunc(slices.Values(list), func(a, b keyserver.ACLEntry) int { return ComparePrincipals(a.Principal, b.Principal) })
	r.List(len(list))
	for _, e := range list {
		r.Key(e.ID).Key(e.ACL).Int(int64(e.Principal.System)).Key(e.Principal.ID).Int(int64(e.Rights)).Int(e.MaxUsage).Int(e.UserRight).
			Bytes(e.Start[:]).Bytes(e.End[:])
	}
	return r
}

// ComparePrincipals defines the order of ACL entries.
func ComparePrincipals(a, b keyserver.PrincipalRef) int {
	return cmp.Or(cmp.Compare(a.System, b.System), slices.Compare(a.ID[:], b.ID[:]))
}

func (r *Row) certificate(c keyserver.Certificate) *Row {
	return r.Key(c.ID).Int(int64(c.Status)).Text(c.Subject).Text(c.Issuer).Text(c.KeyType).Bytes(present(c.Serial)).
		Time(c.NotBefore).Time(c.NotAfter).Bytes(present(c.DER))
}

// present converts nil to an empty slice, because database drivers do not distinguish empty values and NULL.
func present(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// TrustedCA encodes a trusted CA.
func TrustedCA(c keyserver.Certificate) *Row {
	return NewRow("trusted_cas", c.ID.Hex(), c.ID[:]).certificate(c)
}

// Certificate encodes a certificate with its principal and the two columns by which queries find the certificate.
func Certificate(c keyserver.Certificate, fingerprint, subjectKey []byte) *Row {
	r := NewRow("certificates", c.ID.Hex(), c.ID[:]).certificate(c).OptionalKey(c.Principal).Text(c.IssuerDigest).
		Bytes(present(fingerprint)).Bytes(present(subjectKey))
	if len(c.Request) == 0 {
		return r.Bytes(nil)
	}
	return r.Bytes(c.Request)
}

// TrustedServer encodes a peer. The roles of its transport principal are in the row of that principal.
func TrustedServer(s keyserver.TrustedServer) *Row {
	r := NewRow("trusted_servers", SystemName(s.System), int64(s.System)).Int(int64(s.System)).Text(s.Name).Int(int64(s.Port)).Text(s.FriendlyName).
		Text(s.Description).Key(s.Transport).Bytes(present(s.Chain)).certificate(s.Certificate)
	if s.Witness { // otherwise, the encoding is the same as in versions without witnesses
		r.Int(1)
	}
	return r
}

// Authority encodes a CA of the key server without its private key. links is the encoded form of its links.
func Authority(a keyserver.Authority, links []byte) *Row {
	return NewRow("authorities", a.ID.Hex(), a.ID[:]).Key(a.ID).Int(int64(a.Generation)).Text(string(a.State)).Bytes(present(a.Certificate)).Bytes(present(links)).
		Time(a.PreparedAt).Time(a.ActivatedAt).Time(a.RetiringAt)
}

// PeerAuthority encodes a CA that a peer has reported.
func PeerAuthority(a keyserver.PeerAuthority, fingerprint, links []byte) *Row {
	return NewRow("peer_authorities", SystemName(a.System), int64(a.System), fingerprint).Int(int64(a.System)).Bytes(fingerprint).Bytes(present(a.Certificate)).
		Bytes(present(links)).Bytes(a.Anchor[:]).Time(a.LearnedAt)
}

// WitnessedLog encodes the state of a witnessed log.
func WitnessedLog(l keyserver.WitnessedLog) *Row {
	return NewRow("witnessed_logs", l.Origin, l.Origin).Text(l.Origin).Text(l.Key).Int(int64(l.System)).Text(l.WitnessKey).Int(l.Size).Bytes(l.Root[:]).
		Time(l.SeenAt).Text(string(l.Conflict)).Time(l.ConflictAt)
}

// PrincipalTrust encodes a principal trust.
func PrincipalTrust(t keyserver.PrincipalTrust) *Row {
	return NewRow("principal_trusts", t.ID.Hex(), t.ID[:]).Key(t.ID).Key(t.Principal).Int(int64(t.Server)).Int(int64(t.Flag))
}

// Owner encodes an owner mark.
func Owner(m keyserver.OwnerMark) *Row {
	return NewRow("owners", m.Object.String(), string(m.Object.Kind), m.Object.ID[:]).Text(string(m.Object.Kind)).Key(m.Object.ID).Text(m.Owner).Time(m.Since)
}

// ACLTemplate encodes an ACL template without its members.
func ACLTemplate(t keyserver.ACLTemplate) *Row {
	return NewRow("acl_templates", t.ID.Hex(), t.ID[:]).Key(t.ID).Text(t.Name)
}

// TemplateMember encodes one member of a template.
func TemplateMember(template keyserver.ID, m keyserver.TemplateMember) *Row {
	return NewRow("acl_template_members", template.Hex()+" for "+m.Principal.String(),
		template[:], int64(m.Principal.System), m.Principal.ID[:]).Key(template).Int(int64(m.Principal.System)).
		Key(m.Principal.ID).Int(int64(m.Rights)).Int(m.MaxUsage).Bytes(m.Start[:]).Bytes(m.End[:])
}

// TemplateMembers encodes all members of a template. The result is not the encoding of a database row.
func TemplateMembers(template keyserver.ID, members []*Row) *Row {
	all := Digest(members)
	return NewRow("members of an acl template", template.Hex()).Key(template).Bytes(all[:])
}

// TemplatedDirectory encodes a templated directory.
func TemplatedDirectory(d keyserver.TemplatedDirectory) *Row {
	return NewRow("templated_directories", d.ID.Hex(), d.ID[:]).Key(d.ID).Text(d.Path).Text(d.Alias).Text(d.HostID).Key(d.Template).Int(d.Flag)
}

// RevocationPolicy encodes the policy of an issuer.
func RevocationPolicy(issuer string, p keyserver.RevocationPolicy) *Row {
	return NewRow("revocation_policies", issuer, issuer).Text(issuer).Text(string(p.Mode)).Int(int64(p.MaxAge / time.Second))
}

// RevocationList encodes a CRL. It contains only a digest of the serial numbers, because a CRL may have many of them.
func RevocationList(issuer string, c keyserver.CRLFacts, serials keyserver.SerialSet) *Row {
	sum := sha256.Sum256(serials)
	return NewRow("revocation_lists", issuer, issuer).Text(issuer).Bytes(c.Digest[:]).Bytes(present(c.Number)).Time(c.ThisUpdate).
		Time(c.NextUpdate).Time(c.ImportedAt).Int(int64(c.Revoked)).Bytes(sum[:])
}

// Setting encodes a setting.
func Setting(name string, value []byte) *Row {
	sum := sha256.Sum256(value)
	return NewRow("settings", name, name).Text(name).Bytes(sum[:])
}

// Approval encodes an approval request with its votes.
func Approval(a keyserver.Approval) *Row {
	r := NewRow("approvals", a.ID.Hex(), a.ID[:]).Key(a.ID).Int(int64(a.Asker.System)).Key(a.Asker.ID).Text(a.AskerName).
		Text(a.Method).Text(a.Path).Bytes(slices.Clone(a.Body)).Text(a.Reason).Bytes(a.Digest[:]).List(len(a.Operations))
	for _, operation := range a.Operations {
		r.Text(operation)
	}
	r.Time(a.CreatedAt).Time(a.ExpiresAt).Text(string(a.Decision))
	if a.Decision != "" {
		r.Time(a.DecidedAt).Int(int64(a.DecidedBy.System)).OptionalKey(a.DecidedBy.ID)
	}
	votes := slices.SortedFunc(slices.Values(a.Votes), func(x, y keyserver.ApprovalVote) int { return ComparePrincipals(x.Principal, y.Principal) })
	r.List(len(votes))
	for _, v := range votes {
		r.Int(int64(v.Principal.System)).Key(v.Principal.ID).Text(v.Name).Time(v.At)
	}
	if len(a.Subjects) > 0 { // otherwise, the encoding is the same as in versions without subjects
		r.Text("subjects").List(len(a.Subjects))
		for _, s := range a.Subjects {
			r.Text(string(s.Kind)).Text(s.Key).Bytes(s.Digest[:])
		}
	}
	return r
}

// Credentials encodes the data that a principal uses to authenticate. The result is not the encoding of a database row.
func Credentials(p keyserver.Principal, passwordHash string) *Row {
	r := NewRow("credentials", p.ID.Hex(), p.ID[:]).Key(p.ID).Text(string(p.Type)).Text(p.Name).Text(password.Lasting(passwordHash))
	if p.Identity != nil {
		r.Text(p.Identity.Issuer).Text(p.Identity.Subject).texts(p.Identity.Audiences)
	}
	return r
}
