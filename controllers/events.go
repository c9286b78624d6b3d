package controllers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/keyserver-operator/keyserver-operator/api/v1alpha1"
)

// happening is one event, before it is recorded.
type happening struct {
	Warning bool
	Reason  string
	Action  string
	Note    string
}

// maxNote is what the events API takes.
const maxNote = 1024

func (h happening) record(r events.EventRecorder, about runtime.Object) {
	kind := corev1.EventTypeNormal
	if h.Warning {
		kind = corev1.EventTypeWarning
	}
	// The note is an argument, never the format: a name may hold a percent sign.
	r.Eventf(about, nil, kind, h.Reason, h.Action, "%s", clip(h.Note, maxNote))
}

func createdEvent(what, evidence string) happening {
	return happening{Reason: "Created", Action: "Create", Note: fmt.Sprintf("created %s: %s", what, evidence)}
}

func adoptedEvent(what, evidence string) happening {
	return happening{Reason: "Adopted", Action: "Adopt", Note: fmt.Sprintf("took over %s: %s", what, evidence)}
}

func updatedEvent(what, fields, evidence string) happening {
	return happening{Reason: "Updated", Action: "Update", Note: fmt.Sprintf("corrected %s of %s: %s", fields, what, evidence)}
}

func driftFoundEvent(what, found string) happening {
	return happening{Warning: true, Reason: "DriftFound", Action: "Observe", Note: fmt.Sprintf("%s was changed outside: %s", what, found)}
}

func retiredEvent(id, evidence string) happening {
	return happening{Reason: "SupersededRemoved", Action: "Retire", Note: fmt.Sprintf("removed the superseded %s: %s", id, evidence)}
}

func forgottenEvent(message string) happening {
	return happening{Reason: "SupersededLeft", Action: "Forget", Note: message}
}

func deletedEvent(what, evidence string) happening {
	return happening{Reason: "Deleted", Action: "Delete", Note: fmt.Sprintf("deleted %s: %s", what, evidence)}
}

// removingEvent says what a deletion takes with it, before it does.
func removingEvent(message string) happening {
	return happening{Warning: true, Reason: "Removing", Action: "Delete", Note: message}
}

func releasedEvent(message string) happening {
	return happening{Reason: "Released", Action: "Release", Note: message}
}

// reasonEvent says that an object has come into a state that people may have
// to act upon.
func reasonEvent(reason v1alpha1.Reason, deleting bool, message string) happening {
	h := happening{
		Warning: reason.Entry().Outlook != v1alpha1.Settled,
		Reason:  string(reason), Action: "Reconcile", Note: message,
	}
	if deleting {
		h.Reason, h.Action = "DeletionHeld", "Delete"
	}
	return h
}
