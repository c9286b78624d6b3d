package status

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
)

// Event is the content of a Kubernetes event.
type Event struct {
	Warning bool
	Reason  string
	Action  string
	Note    string
}

// maxNote is the maximum length of a note in the events API.
const maxNote = 1024

// Record sends the event to the recorder.
func (e Event) Record(r events.EventRecorder, about runtime.Object) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	// The note is an argument, never the format: a name may contain a percent sign.
	r.Eventf(about, nil, kind, e.Reason, e.Action, "%s", brief.Clip(e.Note, maxNote))
}

// CreatedEvent reports that an external object was created, and what the re-read showed.
func CreatedEvent(what, evidence string) Event {
	return Event{Reason: "Created", Action: "Create", Note: fmt.Sprintf("created %s: %s", what, evidence)}
}

// AdoptedEvent reports that the object took over an external object that existed.
func AdoptedEvent(what, evidence string) Event {
	return Event{Reason: "Adopted", Action: "Adopt", Note: fmt.Sprintf("took over %s: %s", what, evidence)}
}

// UpdatedEvent reports the fields that were corrected.
func UpdatedEvent(what, fields, evidence string) Event {
	return Event{Reason: "Updated", Action: "Update", Note: fmt.Sprintf("corrected %s of %s: %s", fields, what, evidence)}
}

// DriftFoundEvent reports that another client has changed an external object.
func DriftFoundEvent(what, found string) Event {
	return Event{Warning: true, Reason: "DriftFound", Action: "Observe", Note: fmt.Sprintf("%s was changed outside: %s", what, found)}
}

// RetiredEvent reports that a superseded external object was removed.
func RetiredEvent(id, evidence string) Event {
	return Event{Reason: "SupersededRemoved", Action: "Retire", Note: fmt.Sprintf("removed the superseded %s: %s", id, evidence)}
}

// ForgottenEvent reports that a superseded external object was left on the key server.
func ForgottenEvent(message string) Event {
	return Event{Reason: "SupersededLeft", Action: "Forget", Note: message}
}

// RotatedEvent reports a change that the key server made as declared.
func RotatedEvent(what, news string) Event {
	return Event{Reason: "Rotated", Action: "Observe", Note: fmt.Sprintf("%s: %s", what, news)}
}

// DeletedEvent reports that an external object was deleted.
func DeletedEvent(what, evidence string) Event {
	return Event{Reason: "Deleted", Action: "Delete", Note: fmt.Sprintf("deleted %s: %s", what, evidence)}
}

// RemovingEvent reports what else a deletion removes, before the deletion.
func RemovingEvent(message string) Event {
	return Event{Warning: true, Reason: "Removing", Action: "Delete", Note: message}
}

// ExpiringEvent reports that something that an object declares is about to expire.
func ExpiringEvent(message string) Event {
	return Event{Warning: true, Reason: "Expiring", Action: "Observe", Note: message}
}

// ReleasedEvent reports that an external object stays on the key server without its owner.
func ReleasedEvent(message string) Event {
	return Event{Reason: "Released", Action: "Release", Note: message}
}

// LeftBehindEvent reports that the key server of a KeyServer
// still has external objects of deleted objects.
func LeftBehindEvent(message string) Event {
	return Event{Warning: true, Reason: "LeftBehind", Action: "Observe", Note: message}
}

// ReasonEvent reports that an object has entered a state that may need action by a user.
func ReasonEvent(reason v1beta1.Reason, deleting bool, message string) Event {
	e := Event{
		Warning: reason.Entry().Outlook != v1beta1.Settled,
		Reason:  string(reason), Action: "Reconcile", Note: message,
	}
	if deleting {
		e.Reason, e.Action = "DeletionHeld", "Delete"
	}
	return e
}
