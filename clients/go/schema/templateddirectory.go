package schema

// TemplatedDirectory says which ACL template applies to keys under a path.
type TemplatedDirectory struct {
	ID            HexID  `json:"id"`
	Path          string `json:"path" doc:"Path with exactly one trailing slash."`
	Alias         string `json:"alias" doc:"Label from the request that created the directory; it has no effect."`
	HostID        string `json:"hostId" doc:"Label like alias; it has no effect."`
	ACLTemplateID HexID  `json:"aclTemplateId"`
	Flag          int64  `json:"flag" doc:"Number from the request that created the directory; it has no effect."`
}

// TemplatedDirectoryQuery selects directories.
type TemplatedDirectoryQuery struct {
	Path          []string `query:"path,blank" items:"0..256" limit:"1..1024" doc:"Path to find exactly, after its trailing slash is corrected. Repeat it for several paths. Empty values are ignored."`
	ACLTemplateID []HexID  `query:"aclTemplateId" names:"template" items:"0..256" doc:"Template that the directories use. Repeat it for several templates. It cannot be combined with path."`
}

// TemplatedDirectoryList is the response of GET /api/templated-directories.
type TemplatedDirectoryList struct {
	Directories    []TemplatedDirectory `json:"directories"`
	RequestedPaths []string             `json:"requestedPaths,omitzero" doc:"Requested paths; absent if none were sent."`
	QueriedPaths   []string             `json:"queriedPaths,omitzero" doc:"Paths that were searched, one for each requested path."`
}

// CreateTemplatedDirectoryRequest requests a templated directory.
type CreateTemplatedDirectoryRequest struct {
	Path          string `json:"path" limit:"1..1024" doc:"Path; the trailing slash is optional. No segment may be empty, . or .. ."`
	ACLTemplateID HexID  `json:"aclTemplateId" names:"template"`
	Alias         string `json:"alias,omitzero" limit:"0..128"`
	HostID        string `json:"hostId,omitzero" limit:"0..128"`
	Flag          int64  `json:"flag,omitzero" limit:"0..2147483647"`
}

// TemplatedDirectorySaved is the result of creating a directory.
type TemplatedDirectorySaved struct {
	ID        HexID               `json:"id"`
	Saved     bool                `json:"saved" doc:"True if the second read shows every field."`
	Missing   bool                `json:"missing,omitzero" doc:"True if the second read does not show the directory."`
	Directory *TemplatedDirectory `json:"directory" doc:"State from the second read; null if missing."`
	Verdict
}

// MissingEvidence returns "" if the second read shows the directory.
func (r TemplatedDirectorySaved) MissingEvidence() string {
	return notShown(r.Saved && r.Directory != nil, "the directory")
}

// TemplatedDirectoryGone is the result of deleting a directory.
type TemplatedDirectoryGone struct {
	ID        HexID              `json:"id"`
	Gone      bool               `json:"gone" doc:"True if the second read no longer shows the directory."`
	Directory TemplatedDirectory `json:"directory" doc:"State before the deletion."`
	Verdict
}

// MissingEvidence returns "" if the second read no longer shows the directory.
func (r TemplatedDirectoryGone) MissingEvidence() string { return notDeleted(r.Gone, "the directory") }
