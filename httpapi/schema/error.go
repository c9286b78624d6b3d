package schema

// Error is the body of every failure (contract 1.9). Match on Code; the wording
// of Detail may change.
type Error struct {
	Code   string `json:"code" doc:"What failed. Clients match on this."`
	Detail string `json:"detail" doc:"For people: what happened and what to do. The wording is not part of the contract."`
	Reauth bool   `json:"reauth,omitzero" doc:"True where a new login is what helps."`
	// Retryable is a pointer because it is present, true or false, on every 503.
	Retryable   *bool  `json:"retryable,omitzero" doc:"On 503: whether the same request may succeed later."`
	Scope       string `json:"scope,omitzero" enum:"session,process" doc:"On 503: how far the refusal reaches."`
	Unsupported bool   `json:"unsupported,omitzero" doc:"True where the service has no such path or method, as opposed to no such object."`
}

// Verdict is the part that every verified write's answer shares. Code is
// absent when the re-read agrees.
type Verdict struct {
	Code   string `json:"code,omitempty" doc:"Absent on success; otherwise what the re-read disagreed about."`
	Detail string `json:"detail" doc:"What the verdict rests on."`
}

// Judge records that the re-read disagreed: the answer keeps its shape and
// says so.
func (v *Verdict) Judge(code, detail string) { v.Code, v.Detail = code, detail }

// The answer of a verified write says itself what it lacks to be believed: it
// has a method Unproven, which answers nothing where nothing is missing, and
// otherwise a sentence for people. A service that answers 200 has read back what
// it wrote; one that cannot show it has not.

// unshown is the sentence of an answer that should show an object.
func unshown(shown bool, object string) string {
	if shown {
		return ""
	}
	return "the service reports success without " + object + " as read back"
}

// otherwise is the sentence of an answer that shows something else than what was asked
// for, which an answer to an earlier request does.
func otherwise(agrees bool, object string) string {
	if agrees {
		return ""
	}
	return "the service reports success, and " + object + " that it read back is not as it was asked for"
}

// ungone is the sentence of an answer that should say that an object is gone.
func ungone(gone bool, object string) string {
	if gone {
		return ""
	}
	return "the service reports success, but not that " + object + " is gone"
}
