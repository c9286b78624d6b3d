// Package system marks a test package for "make test-system". hack/needs.sh puts each package
// that imports it, or that starts the program or a third-party program, into that target.
package system
