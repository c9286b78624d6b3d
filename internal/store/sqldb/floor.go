package sqldb

import (
	"context"
	"fmt"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// Release is a release of this program, with the newest version of the schema in that release.
type Release struct {
	Name   string
	Schema int64
}

// Releases are the published releases, in order. RELEASE.md says when to add one. A
// migration after the last release may remove only parts of the schema that these releases
// do not need (ADR 56).
var Releases = []Release{{"0.1.0", 11}}

// floorSince is the first version of the schema that records which programs can work
// with it. A newer program migrates an older version before it works with the database.
const floorSince = 34

// VersionInfo is what a database records about its version.
type VersionInfo struct {
	Version int64  // version of the schema; 0 if there is none yet
	newest  string // the newest release that opened the database; empty if unknown
	// floor is the lowest version of the schema that a program has to know to work with
	// the database, or 0 if unknown. oldest is the first release that knows that version.
	floor  int64
	oldest string
}

// ReadVersionInfo reads the version information of a database. It rejects a database that has only tables of other
// programs.
func ReadVersionInfo(ctx context.Context, d Dialect, db Pool) (VersionInfo, error) {
	version, err := schemaVersion(ctx, d, db)
	is := VersionInfo{Version: version}
	if err != nil || version < floorSince {
		return is, err
	}
	var signed int64
	err = Statements{Run: db, Dialect: d}.Row(ctx, `SELECT version, release, floor, floor_release FROM schema_floor`, nil, &signed, &is.newest, &is.floor, &is.oldest)
	if err != nil {
		return is, fmt.Errorf("read the schema floor of the database: %w", Translate(d, err))
	}
	if signed < is.Version { // the process that migrated the database ended before it called recordRelease
		is.newest, is.oldest = "", ""
	}
	return is, nil
}

// Refusal returns why a program that knows schemas up to target cannot work with the
// database. It returns nil if the program can, possibly after a migration.
func (s VersionInfo) Refusal(target int64) error {
	switch {
	case s.floor <= target && (s.Version <= target || s.floor > 0):
		return nil
	case s.newest == "" || s.oldest == "":
		return Refuse(ErrNewerVersion, "the database has schema %d, but this program, release %s, knows schemas up to %d; "+
			"use the release that wrote it, or a later one, or restore the backup from before the upgrade", s.Version, version.String(), target)
	default:
		return Refuse(ErrNewerVersion, "the database has schema %d of release %s, but this program, release %s, knows schemas up to %d and is too old; "+
			"use release %s or later, or restore the backup from before the upgrade", s.Version, s.newest, version.String(), target, s.oldest)
	}
}

// newerWarning returns a warning if the database is newer than a program that can work with it,
// otherwise "".
func (s VersionInfo) newerWarning(target int64) string {
	if s.Version <= target {
		return ""
	}
	return fmt.Sprintf("the database has schema %d of release %s, but this program, release %s, has schema %d: it works without the new features; "+
		"upgrade all replicas to the same release (docs/upgrade.md)", s.Version, s.newest, version.String(), target)
}

// recordRelease records this release as the newest one that opened the database, unless a release with
// the same or a newer schema is recorded.
func (s VersionInfo) recordRelease(ctx context.Context, d Dialect, db Pool, target int64) error {
	if target < floorSince {
		return nil
	}
	_, err := Statements{Run: db, Dialect: d}.Exec(ctx, `UPDATE schema_floor SET version = $1, release = $2, floor_release = $3 WHERE version < $1`,
		target, version.String(), firstWith(s.floor))
	return Translate(d, err)
}

// firstWith returns the first release that knows a version of the schema, or this release if no published release does.
func firstWith(schema int64) string {
	for _, r := range Releases {
		if r.Schema >= schema {
			return r.Name
		}
	}
	return version.String()
}

// NewerWarning returns a message if the database is of a newer release than this program,
// otherwise "".
func (h *Handle) NewerWarning() string {
	if text := h.newerWarning.Load(); text != nil {
		return *text
	}
	return ""
}

func (h *Handle) setNewerWarning(is VersionInfo) {
	text := is.newerWarning(h.target)
	h.newerWarning.Store(&text)
}

// checkFloor returns an error if a newer program has migrated the database and this program can no longer work with it. It
// also updates the warning of NewerWarning.
func (h *Handle) checkFloor(ctx context.Context) error {
	var is VersionInfo
	err := h.looking.Row(ctx, `SELECT version, release, floor, floor_release FROM schema_floor`, nil, &is.Version, &is.newest, &is.floor, &is.oldest)
	if err != nil {
		return err
	}
	h.setNewerWarning(is)
	return is.Refusal(h.target)
}
