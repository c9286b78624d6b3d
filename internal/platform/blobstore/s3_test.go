package blobstore_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/keyserver-operator/keyserver-operator/internal/platform/blobstore"
	"github.com/keyserver-operator/keyserver-operator/test/rig"
	"github.com/keyserver-operator/keyserver-operator/test/rig/bucket"
)

// TestS3 checks the guarantees of Store with the S3 protocol.
func TestS3(t *testing.T) {
	url, away := bucket.New(t)
	s, err := blobstore.Open(t.Context(), url)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, s.Close()) })

	text := func(content string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, content); return err }
	}
	failed := errors.New("it was interrupted")
	if done, err := s.Put(t.Context(), "half", func(w io.Writer) error { return errors.Join(text("half")(w), failed) }); done || !errors.Is(err, failed) {
		t.Errorf("what was interrupted: %v, %v", done, err)
	}
	for _, o := range []struct {
		name, content string
		done          bool
	}{{"b", "first", true}, {"b", "second", false}, {"a", strings.Repeat("much", 1<<18), true}} {
		if done, err := s.Put(t.Context(), o.name, text(o.content)); err != nil || done != o.done {
			t.Errorf("put %s: %v, %v", o.name, done, err)
		}
	}
	r, size, err := s.Get(t.Context(), "b")
	rig.Must(t, err)
	content, err := io.ReadAll(r)
	if rig.Must(t, errors.Join(err, r.Close())); string(content) != "first" || size != 5 {
		t.Errorf("read %q, of %d bytes", content, size)
	}
	if r, _, err := s.Get(t.Context(), "half"); r != nil || err != nil {
		t.Errorf("what was interrupted is there: %v, %v", r, err)
	}
	var names []string
	rig.Must(t, s.Each(t.Context(), func(o blobstore.Object) error { names = append(names, o.Name); return nil }))
	if strings.Join(names, " ") != "a b" {
		t.Errorf("there are %q", names)
	}
	for range 2 {
		rig.Must(t, s.Delete(t.Context(), "b"))
	}
	if r, _, err := s.Get(t.Context(), "b"); r != nil || err != nil {
		t.Errorf("it is still there: %v, %v", r, err)
	}
	away()
	if _, err := s.Put(t.Context(), "c", text("c")); err == nil {
		t.Error("written to nobody")
	}
}
