//go:build !linux

package rig

import (
	"errors"
	"testing"
)

// Tmpfs always fails on this system.
func Tmpfs(testing.TB, string, string) error { return errors.ErrUnsupported }

// ChangeTmpfs always fails on this system.
func ChangeTmpfs(string, string) error { return errors.ErrUnsupported }
