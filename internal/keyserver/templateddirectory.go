package keyserver

import "strings"

// Bounds of templated directories. The list is read as a whole; a path is
// short enough for an index of either database.
const (
	MaxTemplatedDirectories = 1024
	MaxDirectoryPath        = 1024 // bytes, the trailing slash included
	MaxDirectoryDepth       = 64   // segments
)

// TemplatedDirectory says which ACL template applies to keys under a path.
type TemplatedDirectory struct {
	ID       ID
	Path     string // as DirectoryPath makes it
	Alias    string
	HostID   string
	Template ID
	Flag     int64
}

// NewTemplatedDirectory is a request to create a templated directory.
type NewTemplatedDirectory struct {
	Path     string
	Alias    string
	HostID   string
	Template ID
	Flag     int64
}

// TemplatedDirectoryFilter selects the directories at paths, or those that use
// one of the templates. Where both are empty it selects all.
type TemplatedDirectoryFilter struct {
	Paths     []string
	Templates []ID
}

// DirectoryPath returns a path as it is stored and compared: with exactly one
// trailing slash. All else is left as it is, because the comparison is exact.
func DirectoryPath(path string) string { return strings.TrimRight(path, "/") + "/" }

// PlainPath reports whether a path names one place: no segment is empty, "."
// or "..", and there are at most MaxDirectoryDepth of them in at most
// MaxDirectoryPath bytes. Paths are compared as text, so that
// "/public/../secret" would pass for a place under "/public/".
func PlainPath(path string) bool {
	path = DirectoryPath(path)
	if len(path) > MaxDirectoryPath {
		return false
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if inner == "" {
		return true // the root
	}
	segments := strings.Split(inner, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return false
		}
	}
	return len(segments) <= MaxDirectoryDepth
}

// Ancestors lists the directories that a plain path lies under, the path
// itself first and the shortest last: the first that is templated is the one
// that applies.
func Ancestors(path string) []string {
	path = DirectoryPath(path)
	list := []string{path}
	for end := strings.LastIndexByte(path[:len(path)-1], '/'); end >= 0; end = strings.LastIndexByte(path[:end], '/') {
		list = append(list, path[:end+1])
	}
	return list
}
