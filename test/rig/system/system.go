// Package system marks a test package for "make test-system". hack/needs.sh adds each package that imports it, or that
// starts the program or a third-party program, to that target.
package system
