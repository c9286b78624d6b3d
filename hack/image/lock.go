package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock waits until no other run writes to out: a second run would remove files that the
// first is about to pack. The lock ends with the process.
func lock(ctx context.Context, out string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	held = file
	for said := false; ; said = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if !said {
			fmt.Fprintf(os.Stderr, "image: waiting for another run that makes %s\n", out)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// held keeps the lock's file from being closed by the garbage collector.
var held *os.File
