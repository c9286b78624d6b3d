package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keyserver-operator/keyserver-operator/api/v1beta1"
	"github.com/keyserver-operator/keyserver-operator/clients/go/schema"
	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/brief"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/connection"
	"github.com/keyserver-operator/keyserver-operator/internal/operator/reconcile"
)

// directories is the list of templated directories, found by id and by path.
var directories = connection.List[schema.TemplatedDirectory]{
	Name: "templatedDirectory",
	Read: func(ctx context.Context, c *connection.Connection) ([]schema.TemplatedDirectory, error) {
		l, err := c.Officer.ListTemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{})
		return l.Directories, err
	},
	Keys: func(d schema.TemplatedDirectory) []string { return []string{d.ID.String(), byPath(d.Path)} },
}

func byPath(path string) string { return "path:" + path }

// directoryPath adds the trailing slash with which the key server stores a path.
func directoryPath(path string) string { return strings.TrimRight(path, "/") + "/" }

// directoriesAbove lists the directories that contain a path.
func directoriesAbove(path string) (above []string) {
	path = directoryPath(path)
	for i := range path {
		if path[i] == '/' {
			above = append(above, path[:i+1])
		}
	}
	return above
}

// compareDirectories lists the differences between the directories of the template and the declared ones. added means
// that no directory has to be removed. taken is a message about declared directories that other templates use.
func compareDirectories(ctx context.Context, in reconcile.Input, template string, want map[string]bool) (drift []v1beta1.FieldDrift, added bool, taken string, err error) {
	if want == nil {
		return nil, true, "", nil
	}
	listed := directories.Of(in.Conn)
	if err := listed.Refresh(ctx, in.NotBefore); err != nil {
		return nil, false, "", err
	}
	added = true
	var have, foreign []string
	listed.Each(func(d schema.TemplatedDirectory) {
		switch {
		case d.ACLTemplateID.String() == template:
			have = append(have, d.Path)
			added = added && want[d.Path]
		case want[d.Path]:
			foreign = append(foreign, fmt.Sprintf("%s (template %s)", d.Path, d.ACLTemplateID))
		}
	})
	declared := slices.Sorted(maps.Keys(want))
	slices.Sort(have)
	slices.Sort(foreign)
	if !slices.Equal(have, declared) {
		drift = []v1beta1.FieldDrift{{Field: "directories", Declared: strings.Join(declared, ", "), Observed: strings.Join(have, ", ")}}
	}
	if len(foreign) > 0 {
		taken = "spec.directories: other templates use " + brief.List(foreign) + "; remove these directories there first"
	}
	return drift, added, taken, nil
}

// place makes the directories of the template equal to the declared ones, always in the same order.
func place(ctx context.Context, c *connection.Connection, want map[string]bool, template schema.HexID) error {
	if want == nil {
		return nil
	}
	have, err := displace(ctx, c, template, func(path string) bool { return want[path] })
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if have[path] {
			continue
		}
		saved, err := c.Officer.CreateTemplatedDirectory(ctx, schema.CreateTemplatedDirectoryRequest{Path: path, ACLTemplateID: template})
		if err != nil {
			return err
		}
		directories.Of(c).Put(*saved.Directory)
	}
	return nil
}

// displace deletes the directories of the template that keep does not select, and returns the kept ones. It does not
// update the listing, so that the change feed reports the change: another template may wait for a deleted path.
func displace(ctx context.Context, c *connection.Connection, template schema.HexID, keep func(path string) bool) (kept map[string]bool, err error) {
	all, err := c.Officer.ListTemplatedDirectories(ctx, schema.TemplatedDirectoryQuery{})
	if err != nil {
		return nil, err
	}
	kept = map[string]bool{}
	for _, d := range all.Directories {
		if d.ACLTemplateID != template {
			continue
		}
		if keep(d.Path) {
			kept[d.Path] = true
			continue
		}
		_, err := c.Officer.DeleteTemplatedDirectory(ctx, schema.ByID{ID: d.ID})
		if err != nil && !connection.IsGone(err) {
			return nil, err
		}
		c.Outdated(directories.Name)
	}
	return kept, nil
}
