// Package version contains the release number.
package version

import "strconv"

// A release changes these lines. config/image and CHANGELOG.md must have the same number; test/document checks this.
const (
	Major   = 0
	Minor   = 1
	Build   = 0
	Edition = 1
)

// String returns the release number in the form of its Git tag, without the v.
func String() string {
	return strconv.Itoa(Major) + "." + strconv.Itoa(Minor) + "." + strconv.Itoa(Build)
}
