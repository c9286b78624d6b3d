//go:build !linux

package install

import (
	"errors"
	"syscall"
)

func ownMounts() *syscall.SysProcAttr { return nil }

// enterContainer fails: only Linux has namespaces.
func enterContainer(string) error { return errors.ErrUnsupported }
