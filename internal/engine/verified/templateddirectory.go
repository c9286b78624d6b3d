package verified

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
)

// DirectoryList is the result of reading templated directories. The paths are nil if the request has no paths.
type DirectoryList struct {
	Directories    []keyserver.TemplatedDirectory
	RequestedPaths []string // as requested
	QueriedPaths   []string // as sent to the key server, one for each requested path
}

// DirectoryResult is the result of creating a templated directory.
type DirectoryResult struct {
	ID        keyserver.ID
	Saved     bool
	Missing   bool // no directory has that id after the write
	Directory *keyserver.TemplatedDirectory
	Detail    string
}

// DirectoryGone is the result of deleting a templated directory.
type DirectoryGone struct {
	ID        keyserver.ID
	Gone      bool
	Directory keyserver.TemplatedDirectory // before the deletion
	Detail    string
}

// TemplatedDirectories returns all directories, or the directories at the given paths, or the directories with one of
// the given templates. If there are none, it returns an empty list. It filters the entire list by template, because a
// key server returns only one directory for each template.
func (s *Service) TemplatedDirectories(ctx context.Context, by keyserver.Caller, f keyserver.TemplatedDirectoryFilter) (DirectoryList, error) {
	paths := slices.DeleteFunc(slices.Clone(f.Paths), func(p string) bool { return p == "" })
	if len(paths) > 0 && len(f.Templates) > 0 {
		return DirectoryList{}, fault.New(fault.BadRequest, "path: cannot be combined with aclTemplateId; send one of them")
	}
	if len(paths) > 0 {
		return s.directoriesAt(ctx, by, paths)
	}
	all, err := s.ks.TemplatedDirectories(ctx, by)
	if err != nil {
		return DirectoryList{}, err
	}
	if len(f.Templates) > 0 {
		all = slices.DeleteFunc(slices.Clone(all), func(d keyserver.TemplatedDirectory) bool { return !slices.Contains(f.Templates, d.Template) })
	}
	return DirectoryList{Directories: all}, nil
}

func (s *Service) directoriesAt(ctx context.Context, by keyserver.Caller, paths []string) (DirectoryList, error) {
	list := DirectoryList{RequestedPaths: paths}
	for _, p := range paths {
		list.QueriedPaths = append(list.QueriedPaths, keyserver.DirectoryPath(p))
	}
	// Query each path only once. Otherwise a path that was requested twice would be listed twice.
	asked := slices.Clone(list.QueriedPaths)
	slices.Sort(asked)
	var err error
	list.Directories, err = s.ks.TemplatedDirectoriesAt(ctx, by, slices.Compact(asked))
	return list, err
}

// CreateTemplatedDirectory creates a directory and verifies every field.
func (s *Service) CreateTemplatedDirectory(ctx context.Context, by keyserver.Caller, n keyserver.NewTemplatedDirectory) (DirectoryResult, error) {
	if err := refuseDirectory(n); err != nil {
		return DirectoryResult{}, err
	}
	n.Path = keyserver.DirectoryPath(n.Path)
	var id keyserver.ID
	return verifiedWrite[[]keyserver.TemplatedDirectory, DirectoryResult]{
		read: func(ctx context.Context) ([]keyserver.TemplatedDirectory, error) {
			return s.ks.TemplatedDirectoriesAt(ctx, by, []string{n.Path})
		},
		refuse: func(before []keyserver.TemplatedDirectory) error {
			if len(before) > 0 {
				return fault.New(fault.AlreadyExists, "path: %q already has the templated directory %s; remove it first", n.Path, before[0].ID)
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.TemplatedDirectory) (err error) {
			id, err = s.ks.CreateTemplatedDirectory(ctx, by, n)
			return err
		},
		verdict: func(_, after []keyserver.TemplatedDirectory) (DirectoryResult, error) {
			return judgeDirectory(id, n, after)
		},
	}.do(ctx)
}

// DeleteTemplatedDirectory deletes a directory and verifies that it is gone.
func (s *Service) DeleteTemplatedDirectory(ctx context.Context, by keyserver.Caller, id keyserver.ID) (DirectoryGone, error) {
	return verifiedWrite[[]keyserver.TemplatedDirectory, DirectoryGone]{
		read: func(ctx context.Context) ([]keyserver.TemplatedDirectory, error) {
			return s.ks.TemplatedDirectories(ctx, by)
		},
		refuse: func(before []keyserver.TemplatedDirectory) error {
			if _, ok := findDirectory(before, id); !ok {
				return fault.New(fault.NotFound, "no templated directory has the id %s; list them with GET /api/templated-directories", id)
			}
			return nil
		},
		write: func(ctx context.Context, _ []keyserver.TemplatedDirectory) error {
			return s.ks.DeleteTemplatedDirectory(ctx, by, id)
		},
		verdict: func(before, after []keyserver.TemplatedDirectory) (DirectoryGone, error) {
			d, _ := findDirectory(before, id)
			r := DirectoryGone{ID: id, Directory: d}
			if _, still := findDirectory(after, id); still {
				r.Detail = "the key server accepted the removal, but a fresh read still shows the templated directory"
				return r, fault.New(fault.NotRemoved, "%s", r.Detail)
			}
			r.Gone = true
			r.Detail = fmt.Sprintf("a fresh read no longer shows the templated directory %q; existing keys under it keep their entries", d.Path)
			return r, nil
		},
	}.do(ctx)
}

func judgeDirectory(id keyserver.ID, n keyserver.NewTemplatedDirectory, after []keyserver.TemplatedDirectory) (DirectoryResult, error) {
	r := DirectoryResult{ID: id}
	d, ok := findDirectory(after, id)
	want := keyserver.TemplatedDirectory{ID: id, Path: n.Path, Alias: n.Alias, HostID: n.HostID, Template: n.Template, Flag: n.Flag}
	switch {
	case !ok:
		r.Missing = true
		r.Detail = "the key server accepted the templated directory, but a fresh read does not show it at its path"
	case d != want:
		r.Directory, r.Detail = &d, "a fresh read shows other values than sent"
	default:
		r.Directory, r.Saved, r.Detail = &d, true, "a fresh read shows every field as sent; new keys under the path get ACL entries for the members of the ACL template"
		return r, nil
	}
	return r, fault.New(fault.NotSaved, "%s", r.Detail)
}

func refuseDirectory(n keyserver.NewTemplatedDirectory) error {
	if err := refusePath(n.Path); err != nil {
		return err
	}
	if err := requireID("aclTemplateId", n.Template); err != nil {
		return err
	}
	for field, text := range map[string]string{"alias": n.Alias, "hostId": n.HostID} {
		if utf8.RuneCountInString(text) > maxName || !utf8.ValidString(text) {
			return fault.New(fault.BadRequest, "%s: must be valid UTF-8 of at most %d characters", field, maxName)
		}
	}
	if n.Flag < 0 {
		return fault.New(fault.BadRequest, "flag: must not be negative")
	}
	return nil
}

// refusePath returns an error for a path that is not in canonical form. The key server compares paths as text.
func refusePath(path string) error {
	if path == "" || !utf8.ValidString(path) || !keyserver.PlainPath(path) {
		return fault.New(fault.BadRequest, `path: must have 1 to %d segments, none of them empty, "." or "..", in at most %d bytes`,
			keyserver.MaxDirectoryDepth, keyserver.MaxDirectoryPath)
	}
	return nil
}

func findDirectory(list []keyserver.TemplatedDirectory, id keyserver.ID) (keyserver.TemplatedDirectory, bool) {
	for _, d := range list {
		if d.ID == id {
			return d, true
		}
	}
	return keyserver.TemplatedDirectory{}, false
}
