// Package version says which release this is.
package version

import "strconv"

// A release is one change of these lines; config/image and CHANGELOG.md follow,
// and test/document holds them to it.
const (
	Major   = 0
	Minor   = 1
	Build   = 0
	Edition = 1
)

// String is the release as its tag has it after the v.
func String() string {
	return strconv.Itoa(Major) + "." + strconv.Itoa(Minor) + "." + strconv.Itoa(Build)
}
