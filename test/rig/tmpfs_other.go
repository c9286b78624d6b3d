//go:build !linux

package rig

import (
	"errors"
	"testing"
)

// Tmpfs fails.
func Tmpfs(testing.TB, string, string) error { return errors.ErrUnsupported }

// ChangeTmpfs fails.
func ChangeTmpfs(string, string) error { return errors.ErrUnsupported }
