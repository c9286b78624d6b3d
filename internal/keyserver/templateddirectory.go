package keyserver

import "strings"

// Limits of templated directories. The list is read completely, and both databases can index paths of this length.
const (
	MaxTemplatedDirectories = 1024
	MaxDirectoryPath        = 1024 // bytes, the trailing slash included
	MaxDirectoryDepth       = 64   // segments
)

// TemplatedDirectory assigns an ACL template to the keys under a path.
type TemplatedDirectory struct {
	ID       ID
	Path     string // in the format of DirectoryPath
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

// TemplatedDirectoryFilter selects the directories at the paths, or those that use one of
// the templates. If both are empty, it selects all.
type TemplatedDirectoryFilter struct {
	Paths     []string
	Templates []ID
}

// DirectoryPath returns a path in the form that is stored and compared: with exactly one
// trailing slash. It changes nothing else, because the comparison is exact.
func DirectoryPath(path string) string { return strings.TrimRight(path, "/") + "/" }

// PlainPath reports whether a path is unambiguous: no segment is empty, "." or "..", and
// it has at most MaxDirectoryDepth segments and MaxDirectoryPath bytes. Paths are
// compared as text, so "/public/../secret" would count as a place under "/public/".
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

// Ancestors returns the directories that contain a plain path, the path itself first and the shortest last. The first
// of them that is a templated directory applies to the path.
func Ancestors(path string) []string {
	path = DirectoryPath(path)
	list := []string{path}
	for end := strings.LastIndexByte(path[:len(path)-1], '/'); end >= 0; end = strings.LastIndexByte(path[:end], '/') {
		list = append(list, path[:end+1])
	}
	return list
}
