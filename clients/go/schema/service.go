package schema

// Health is the response of a process that serves requests.
type Health struct {
	Status string `json:"status" const:"ok"`
}

// Part is the state of one part of the key server.
type Part struct {
	Part           string `json:"part" doc:"Name of the part, such as admission or certificate."`
	Ready          bool   `json:"ready"`
	Detail         string `json:"detail" doc:"Text for people; the wording may change."`
	RetryInSeconds int    `json:"retryInSeconds,omitzero" doc:"Seconds until the next try of the part."`
}

// Ready is the readiness of the key server and of each part. If it is not ready, the status is 503, and code, detail,
// retryable and scope are set.
type Ready struct {
	Ready     bool     `json:"ready"`
	Parts     []Part   `json:"parts"`
	Warnings  []string `json:"warnings" doc:"Problems that need attention, although the service works."`
	Code      string   `json:"code,omitempty" doc:"Absent if ready."`
	Detail    string   `json:"detail" doc:"Text for people; the wording may change."`
	Retryable *bool    `json:"retryable,omitzero" doc:"True if not ready: retry later."`
	Scope     string   `json:"scope,omitzero" enum:"FailureScope" doc:"Always process: another replica may be ready."`
}

// Judge records that the key server is not ready at the moment.
func (r *Ready) Judge(code, detail string) {
	retryable := true
	r.Code, r.Detail, r.Retryable, r.Scope = code, detail, &retryable, "process"
}

// Version is the version of the key server. A field that the key server did not report is
// absent; it has no default.
type Version struct {
	Major   *int   `json:"major,omitzero" doc:"Absent if the key server did not report it."`
	Minor   *int   `json:"minor,omitzero" doc:"Absent if the key server did not report it."`
	Build   *int   `json:"build,omitzero" doc:"Absent if the key server did not report it."`
	Edition *int   `json:"edition,omitzero" doc:"Number of the product edition."`
	Version string `json:"version" doc:"Version text in free form; it may differ from the numbers."`
	Detail  string `json:"detail" doc:"Text for people; the wording may change."`
}
