package schema

// Error is the body of every failure (contract 1.9). Clients compare Code; the wording of
// Detail may change.
type Error struct {
	Code   string `json:"code" doc:"Code of the failure. Clients compare this."`
	Detail string `json:"detail" doc:"Text for people: the problem and the remedy. The wording is not part of the contract."`
	Reauth bool   `json:"reauth,omitzero" doc:"True if a new login helps."`
	// Retryable is a pointer because it is present, true or false, on every 503.
	Retryable   *bool  `json:"retryable,omitzero" doc:"On 503: true if the same request may succeed later."`
	Scope       string `json:"scope,omitzero" enum:"FailureScope" doc:"On 503: extent of the refusal."`
	Unsupported bool   `json:"unsupported,omitzero" doc:"True if the service does not have the path or method; absent if only the object does not exist."`
}

// Verdict is the common part of the responses of verified writes. Code is absent if the second read shows the written
// values.
type Verdict struct {
	Code   string `json:"code,omitempty" doc:"Absent on success; otherwise the code of the failure."`
	Detail string `json:"detail" doc:"Evidence of the result."`
}

// Judge records that the second read does not show the written values. The other fields of the response stay.
func (v *Verdict) Judge(code, detail string) { v.Code, v.Detail = code, detail }

// The response of a verified write has a method MissingEvidence. It returns "" if the response shows that the write was
// verified by a second read. Otherwise, it returns a sentence for people that names the missing part. A key server that
// responds with 200 has verified the write, so the client does not trust a response that does not show this.

// notShown returns the sentence for a response that does not show the object, or "".
func notShown(shown bool, object string) string {
	if shown {
		return ""
	}
	return "the service reports success without " + object + " as read back"
}

// mismatchWith returns the sentence for a response that does not agree with the request,
// such as the response to an earlier request, or "".
func mismatchWith(agrees bool, object string) string {
	if agrees {
		return ""
	}
	return "the service reports success, and " + object + " that it read back is not as it was asked for"
}

// notDeleted returns the sentence for a response that does not say that the object no longer exists, or "".
func notDeleted(gone bool, object string) string {
	if gone {
		return ""
	}
	return "the service reports success, but not that " + object + " is gone"
}
