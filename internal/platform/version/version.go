// Package version has the release number.
package version

import "strconv"

// A release changes these lines; config/image and CHANGELOG.md must agree, and
// test/document checks that.
const (
	Major   = 0
	Minor   = 1
	Build   = 0
	Edition = 1
)

// String returns the release as in its tag, without the v.
func String() string {
	return strconv.Itoa(Major) + "." + strconv.Itoa(Minor) + "." + strconv.Itoa(Build)
}
