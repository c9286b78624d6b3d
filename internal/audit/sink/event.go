package sink

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// SchemaVersion is the version of OCSF (schema.ocsf.io), the event format of all sinks.
const SchemaVersion = "1.8.0"

// Source identifies the key server that sends the rows.
type Source struct {
	ServerName string
	Version    string
}

// OCSF classes of events, and their activities.
const (
	classBase           = 0
	classAuthentication = 3002
	classAPIActivity    = 6003

	create, read, update, remove = 1, 2, 3, 4
	logon, logoff                = 1, 2
	other                        = 99
)

// event is a row, or the proof of a batch, in the OCSF format.
type event struct {
	ActivityID   int           `json:"activity_id"`
	ActivityName string        `json:"activity_name,omitempty"` // if activity_id is 99
	CategoryUID  int           `json:"category_uid"`
	ClassUID     int           `json:"class_uid"`
	TypeUID      int           `json:"type_uid"`
	SeverityID   int           `json:"severity_id"`
	Time         int64         `json:"time"` // milliseconds
	Count        int64         `json:"count,omitempty"`
	StatusID     int           `json:"status_id,omitempty"`
	StatusCode   string        `json:"status_code,omitempty"`
	Status       string        `json:"status,omitempty"`
	Message      string        `json:"message,omitempty"`
	Actor        *actor        `json:"actor,omitempty"`
	User         *user         `json:"user,omitempty"`
	Service      *named        `json:"service,omitempty"`
	Session      *identity     `json:"session,omitempty"`
	API          *api          `json:"api,omitempty"`
	SrcEndpoint  *endpoint     `json:"src_endpoint,omitempty"`
	Resources    []identity    `json:"resources,omitempty"`
	Metadata     eventMetadata `json:"metadata"`
	// RawData is the documented byte encoding of the row, in base64. The leaf of the tree
	// is the SHA-256 of a zero byte and these bytes.
	RawData  string `json:"raw_data,omitempty"`
	Unmapped any    `json:"unmapped,omitempty"`
}

type (
	named struct {
		Name string `json:"name"`
	}
	identity struct {
		UID string `json:"uid"`
	}
	user struct {
		UID    string `json:"uid"`    // decimal, 0 if the principal is unknown
		Domain string `json:"domain"` // the system id of the principal's key server
	}
	actor struct {
		User    user      `json:"user"`
		Session *identity `json:"session,omitempty"`
	}
	api struct {
		Operation string   `json:"operation"`
		Request   identity `json:"request"`
		Service   named    `json:"service"`
	}
	endpoint struct {
		IP   string `json:"ip,omitempty"`
		Name string `json:"name,omitempty"` // only if there is no address
	}
	eventMetadata struct {
		Version  string  `json:"version"`
		Product  product `json:"product"`
		LogName  string  `json:"log_name"`           // the origin of the checkpoint
		UID      string  `json:"uid"`                // the same for each delivery of a row
		Sequence int64   `json:"sequence,omitempty"` // of the row
		// CorrelationUID is the id of the request. A request can have several rows.
		CorrelationUID string `json:"correlation_uid,omitempty"`
	}
	product struct {
		Name       string `json:"name"`
		VendorName string `json:"vendor_name"`
		Version    string `json:"version"`
	}
	// unmapped contains the fields that OCSF does not have.
	unmapped struct {
		SessionKind string `json:"sessionKind,omitempty"`
		Filename    string `json:"filename,omitempty"`
		For         string `json:"for,omitempty"`
		Approval    string `json:"approval,omitempty"`
		OnBehalfOf  *user  `json:"onBehalfOf,omitempty"`
		Chain       int64  `json:"chain"`
		Position    int64  `json:"position"`
	}
	// seal is the content of the last event of each batch.
	seal struct {
		Extent tree.Extent `json:"extent"`
	}
)

// message is one event of a batch, ready to be sent in the format of a receiver.
type message struct {
	event
	id     string
	micros int64
	kind   string // row or seal
	json   []byte
}

// Kinds of messages.
const (
	kindRow  = "row"
	kindSeal = "seal"
)

func (b *batch) messages() ([]message, error) {
	list := make([]message, 0, len(b.rows)+1)
	for i := range b.rows {
		list = append(list, message{event: b.row(i), micros: b.rows[i].Time.UnixMicro(), kind: kindRow})
	}
	list = append(list, message{event: b.seal(), micros: b.rows[len(b.rows)-1].Time.UnixMicro(), kind: kindSeal})
	for i := range list {
		m := &list[i]
		m.id = m.Metadata.UID
		var err error
		if m.json, err = json.Marshal(&m.event); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (b *batch) row(i int) event {
	row := &b.rows[i]
	e := event{
		Time: row.Time.UnixMilli(), StatusCode: row.Reason, RawData: base64.StdEncoding.EncodeToString(b.raw[i]),
		Metadata: b.metadata(decimal(row.Seq)), Unmapped: b.unmapped(row),
	}
	e.Metadata.Sequence, e.Metadata.CorrelationUID = row.Seq, row.RequestID
	e.StatusID, e.Status, e.SeverityID = outcome(row.Outcome)
	if row.Times() > 1 {
		e.Count = row.Times()
	}
	e.SrcEndpoint = &endpoint{IP: row.Address}
	if row.Address == "" {
		e.SrcEndpoint.Name = b.source.ServerName
	}
	var session *identity
	if !row.Session.IsZero() {
		session = &identity{row.Session.Hex()}
	}
	acting := userOf(row.Principal)
	if row.Actor != (keyserver.PrincipalRef{}) {
		acting = userOf(row.Actor)
	}
	switch row.Operation {
	case keyserver.AuditLogin, keyserver.AuditLogout:
		e.class(3, classAuthentication, activityOf(row.Operation))
		who := userOf(row.Principal)
		e.User, e.Service, e.Session = &who, &named{b.source.ServerName}, session
		e.Actor = &actor{User: acting, Session: session}
	default:
		e.class(6, classAPIActivity, activityOf(row.Operation))
		e.Actor = &actor{User: acting, Session: session}
		e.API = &api{Operation: row.Operation, Request: identity{row.RequestID}, Service: named{b.source.ServerName}}
		if row.Object != "" {
			e.Resources = []identity{{row.Object}}
		}
	}
	if e.ActivityID == other {
		e.ActivityName = row.Operation
	}
	return e
}

func (b *batch) seal() event {
	e := event{
		Time: b.rows[len(b.rows)-1].Time.UnixMilli(), SeverityID: 1, ActivityName: "seal",
		Message:  "The rows of the audit log from " + decimal(b.First) + " to " + decimal(b.Last) + " were sent.",
		Metadata: b.metadata(decimal(b.First) + "-" + decimal(b.Last)), Unmapped: seal{b.Extent},
	}
	e.class(0, classBase, other)
	return e
}

func (e *event) class(category, class, activity int) {
	e.CategoryUID, e.ClassUID, e.ActivityID, e.TypeUID = category, class, activity, class*100+activity
}

func (b *batch) metadata(id string) eventMetadata {
	return eventMetadata{
		Version: SchemaVersion, Product: product{Name: "keyserver-operator", VendorName: "keyserver-operator", Version: b.source.Version},
		LogName: b.Log, UID: b.Log + "/" + id,
	}
}

func (b *batch) unmapped(row *keyserver.AuditEntry) unmapped {
	u := unmapped{SessionKind: string(row.Kind), Filename: row.Filename, For: row.For, Chain: row.Chain, Position: row.Position}
	if !row.Approval.IsZero() {
		u.Approval = row.Approval.Hex()
	}
	if row.Actor != (keyserver.PrincipalRef{}) {
		of := userOf(row.Principal)
		u.OnBehalfOf = &of
	}
	return u
}

func userOf(p keyserver.PrincipalRef) user { return user{p.ID.Decimal(), decimal(int64(p.System))} }

// outcome returns the status of a row and its severity: 1 (informational) or 3 (medium).
func outcome(o keyserver.Outcome) (id int, status string, severity int) {
	switch o {
	case keyserver.Allowed:
		return 1, "Success", 1
	case keyserver.Refused:
		return 2, "Failure", 3
	case keyserver.Failed:
		return 2, "Failure", 3
	}
	return other, string(o), 1
}

// activities maps prefixes of operation names to OCSF activities.
var activities = []struct {
	prefix string
	id     int
}{
	{"create", create}, {"add", create}, {"issue", create}, {"enroll", create}, {"make", create}, {"import", create},
	{"list", read}, {"read", read}, {"lookup", read}, {"find", read}, {"watch", read}, {"export", read},
	{"update", update}, {"change", update}, {"set", update}, {"amend", update}, {"rotate", update}, {"renew", update}, {"reset", update},
	{"delete", remove}, {"remove", remove}, {"end", remove},
}

// activityOf returns the OCSF activity of an operation, or "other" for computations.
func activityOf(operation string) int {
	switch operation {
	case keyserver.AuditLogin:
		return logon
	case keyserver.AuditLogout:
		return logoff
	}
	for _, a := range activities {
		if strings.HasPrefix(operation, a.prefix) {
			return a.id
		}
	}
	return other
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
