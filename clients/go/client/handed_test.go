package client

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, r io.Reader) {
	t.Helper()
	_, err := io.ReadFull(r, make([]byte, 1))
	must(t, err)
}

func TestAReaderIsHandedOn(t *testing.T) {
	once := hand(strings.NewReader("message"), nil)
	first, err := once.next(t.Context())
	must(t, err)
	second, err := once.next(t.Context())
	must(t, err) // possible, because nothing was read yet
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, errSpent) {
		t.Errorf("an attempt that was given up reads what is the next one's: %v", err)
	}
	begin(t, second)
	if _, err := once.next(t.Context()); !errors.Is(err, errSpent) {
		t.Errorf("what was begun and cannot be rewound is handed on: %v", err)
	}
	once.end()
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, errSpent) {
		t.Errorf("somebody reads on after the end: %v", err)
	}

	seeker := strings.NewReader("message")
	again := hand(seeker, func() error { _, err := seeker.Seek(0, io.SeekStart); return err })
	for range 3 {
		r, err := again.next(t.Context())
		must(t, err)
		begin(t, r)
		rest, err := io.ReadAll(r)
		if err != nil || string(rest) != "essage" {
			t.Errorf("what was rewound reads %q, %v", rest, err)
		}
	}
	fails := hand(seeker, func() error { return errors.New("it does not seek after all") })
	r, err := fails.next(t.Context())
	must(t, err)
	if _, err := r.Read(nil); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if _, err := fails.next(t.Context()); !errors.Is(err, errSpent) {
		t.Errorf("what could not be rewound is handed on: %v", err)
	}
}

// next and end do not wait for a read that blocks.
func TestAReaderThatWaitsHoldsNobody(t *testing.T) {
	from, to := io.Pipe()
	defer to.Close()
	h := hand(from, func() error { return nil })
	r, err := h.next(t.Context())
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := r.Read(make([]byte, 1))
		ended <- err
	}()
	for !h.begun.Load() {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.next(ctx); !errors.Is(err, errSpent) {
		t.Errorf("it is handed on while it is read: %v", err)
	}
	h.end() // end does not wait for the read
	must(t, to.Close())
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("whoever reads is told %v", err)
	}
}
