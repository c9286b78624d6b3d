//go:build !linux

package script

import "errors"

func stopped(int) error { return errors.ErrUnsupported }

// obeyModes fails: only Linux has capabilities.
func obeyModes() error { return errors.ErrUnsupported }
