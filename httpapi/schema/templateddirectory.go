package schema

// TemplatedDirectory says which ACL template applies to keys under a path.
type TemplatedDirectory struct {
	ID            HexID  `json:"id"`
	Path          string `json:"path" doc:"With exactly one trailing slash."`
	Alias         string `json:"alias" doc:"A label that whoever made the directory gave it; it decides nothing."`
	HostID        string `json:"hostId" doc:"A label, as alias is."`
	ACLTemplateID HexID  `json:"aclTemplateId"`
	Flag          int64  `json:"flag" doc:"A number that whoever made the directory gave it; it decides nothing."`
}

// TemplatedDirectoryQuery selects directories.
type TemplatedDirectoryQuery struct {
	Path          []string `query:"path,blank" items:"0..256" limit:"1..1024" doc:"A path to look up exactly, after its trailing slash is put right; repeat it for several. Empty values are ignored."`
	ACLTemplateID []HexID  `query:"aclTemplateId" names:"template" items:"0..256" doc:"A template that the directories use; repeat it for several. It cannot be combined with path."`
}

// TemplatedDirectoryList is the response of GET /api/templated-directories.
type TemplatedDirectoryList struct {
	Directories    []TemplatedDirectory `json:"directories"`
	RequestedPaths []string             `json:"requestedPaths,omitzero" doc:"The paths as they were sent; absent when none were."`
	QueriedPaths   []string             `json:"queriedPaths,omitzero" doc:"The paths as they were looked up, one for each requested."`
}

// CreateTemplatedDirectoryRequest requests a templated directory.
type CreateTemplatedDirectoryRequest struct {
	Path          string `json:"path" limit:"1..1024" doc:"The trailing slash may be left out. No segment is empty, . or .."`
	ACLTemplateID HexID  `json:"aclTemplateId" names:"template"`
	Alias         string `json:"alias,omitzero" limit:"0..128"`
	HostID        string `json:"hostId,omitzero" limit:"0..128"`
	Flag          int64  `json:"flag,omitzero" limit:"0..2147483647"`
}

// TemplatedDirectorySaved is the verdict on creating a directory.
type TemplatedDirectorySaved struct {
	ID        HexID               `json:"id"`
	Saved     bool                `json:"saved" doc:"Every field reads back."`
	Missing   bool                `json:"missing,omitzero" doc:"The fresh read has no such directory."`
	Directory *TemplatedDirectory `json:"directory" doc:"As read back; null when missing."`
	Verdict
}

// Unproven returns "" if the directory reads back.
func (r TemplatedDirectorySaved) Unproven() string {
	return unshown(r.Saved && r.Directory != nil, "the directory")
}

// TemplatedDirectoryGone is the verdict on deleting a directory.
type TemplatedDirectoryGone struct {
	ID        HexID              `json:"id"`
	Gone      bool               `json:"gone" doc:"A fresh read no longer lists the directory."`
	Directory TemplatedDirectory `json:"directory" doc:"As it stood before the deletion."`
	Verdict
}

// Unproven returns "" if the directory is gone.
func (r TemplatedDirectoryGone) Unproven() string { return ungone(r.Gone, "the directory") }
