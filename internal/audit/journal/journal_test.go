package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/journal"
)

const (
	blockSize  = 512
	headerSize = 4096
	small      = 16 * blockSize // size of a segment
)

var ours = journal.ID{1, 2, 3}

// book is a journal and the groups that were appended to it.
type book struct {
	dir    string
	log    *journal.Journal
	groups []journal.Group
	filled int // number of groups that were reported by Filled
	fail   bool
	got    int    // number of blocks of a failing write that are written
	before []byte // the file before the last write
}

func open(t testing.TB, dir string) *book {
	t.Helper()
	b := &book{dir: dir}
	var err error
	b.log, err = journal.Create(dir, ours, journal.Options{SegmentBytes: small, Write: func(f *os.File, raw []byte, at int64) error {
		if b.fail {
			raw = raw[:min(b.got*blockSize, len(raw))]
		}
		if _, err := f.WriteAt(raw, at); err != nil || !b.fail {
			return err
		}
		return errors.New("no")
	}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *book) append(n int) error {
	b.before, _ = os.ReadFile(b.path())
	group := bytes.Repeat(fmt.Appendf(nil, "%d.", len(b.groups)+1), n)
	end, err := b.log.Append(group)
	if err == nil {
		b.groups = append(b.groups, journal.Group{Bytes: group, End: end})
	}
	return err
}

func (b *book) path() string { return filepath.Join(b.dir, journal.File) }

func (b *book) from() journal.Position {
	if b.filled == 0 {
		return journal.Start
	}
	return b.groups[b.filled-1].End
}

func (b *book) read() ([]journal.Group, error) { return b.readAs(ours) }

func (b *book) readAs(id journal.ID) ([]journal.Group, error) {
	there, err := journal.Load(b.dir)
	if err != nil {
		return nil, err
	}
	return there.Groups(id, b.from())
}

func same(got, want []journal.Group) bool {
	return slices.EqualFunc(got, want, func(a, b journal.Group) bool { return a.End == b.End && bytes.Equal(a.Bytes, b.Bytes) })
}

// draw appends random groups, calls Filled at random and makes writes fail, through several lives.
func draw(rt *rapid.T, b *book) {
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		switch rapid.IntRange(0, 9).Draw(rt, "step") {
		case 0:
			b.filled = rapid.IntRange(b.filled, len(b.groups)).Draw(rt, "filled")
			b.log.Filled(b.from())
		case 1:
			b.fail, b.got = true, rapid.IntRange(0, 4).Draw(rt, "got")
			_ = b.append(rapid.IntRange(0, 1000).Draw(rt, "failing"))
			b.fail = false
		default:
			err := b.append(rapid.IntRange(0, 1500).Draw(rt, "length"))
			if errors.Is(err, journal.ErrFull) {
				b.filled = len(b.groups)
				b.log.Filled(b.from())
			} else if err != nil {
				rt.Fatal(err)
			}
		}
	}
}

func TestWhatWasAppendedIsReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := open(t, t.TempDir())
		defer b.log.Close()
		draw(rt, b)
		got, err := b.read()
		if err != nil {
			rt.Fatal(err)
		}
		// A group whose write failed may still be present.
		if want := b.groups[b.filled:]; len(got) < len(want) || !same(got[:len(want)], want) {
			rt.Fatalf("read %d groups, want %d", len(got), len(want))
		}
	})
}

// TestATornWrite simulates a crash in which any of the blocks of the last write are present. The last group must be
// complete or absent, and all other groups must be present.
func TestATornWrite(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := open(t, t.TempDir())
		defer b.log.Close()
		draw(rt, b)
		if b.append(rapid.IntRange(0, 3000).Draw(rt, "last")) != nil {
			return // the journal is full
		}
		raw, err := os.ReadFile(b.path())
		if err != nil {
			rt.Fatal(err)
		}
		torn := false
		for at := 0; at < len(raw); at += blockSize {
			if now, was := raw[at:at+blockSize], b.before[at:at+blockSize]; !bytes.Equal(now, was) && rapid.Bool().Draw(rt, "lost") {
				copy(now, was)
				torn = true
			}
		}
		if err := os.WriteFile(b.path(), raw, 0o600); err != nil {
			rt.Fatal(err)
		}
		want := b.groups[b.filled:]
		if torn {
			want = want[:len(want)-1]
		}
		got, err := b.read()
		if err != nil || len(got) < len(want) || !same(got[:len(want)], want) || !torn && len(got) != len(want) {
			rt.Fatalf("read %d groups of %d, torn %v, %v", len(got), len(want), torn, err)
		}
	})
}

// TestDamage checks that any other change of a block is detected, and that the error names its position.
func TestDamage(t *testing.T) {
	kinds := map[string]func(rt *rapid.T, raw []byte, at int){
		"flipped": func(rt *rapid.T, raw []byte, at int) {
			bit := rapid.IntRange(0, blockSize*8-1).Draw(rt, "bit")
			raw[at+bit/8] ^= 1 << (bit % 8)
		},
		"zeroed": func(_ *rapid.T, raw []byte, at int) { clear(raw[at : at+blockSize]) },
		"reordered": func(rt *rapid.T, raw []byte, at int) {
			other := headerSize + rapid.IntRange(0, 31).Filter(func(n int) bool { return headerSize+n*blockSize != at }).Draw(rt, "other")*blockSize
			copy(raw[at:at+blockSize], slices.Clone(raw[other:other+blockSize]))
		},
		"half": func(_ *rapid.T, raw []byte, at int) {
			clear(raw[at+blockSize/2 : at+blockSize])
			raw[at+blockSize-1] = 1
		},
	}
	for name, damage := range kinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				b := open(t, t.TempDir())
				defer b.log.Close()
				draw(rt, b)
				raw, err := os.ReadFile(b.path())
				if err != nil {
					rt.Fatal(err)
				}
				at := headerSize + rapid.IntRange(0, 31).Draw(rt, "block")*blockSize
				damage(rt, raw, at)
				if err := os.WriteFile(b.path(), raw, 0o600); err != nil {
					rt.Fatal(err)
				}
				_, err = b.read()
				if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("%s is damaged at byte %d:", b.path(), at)) {
					rt.Fatalf("byte %d: %v", at, err)
				}
			})
		})
	}
}

// TestLostWrites checks that blocks with old content count as damaged if a later group shows that they had been
// written.
func TestLostWrites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := open(t, t.TempDir())
		defer b.log.Close()
		draw(rt, b)
		if b.append(rapid.IntRange(0, 1500).Draw(rt, "lost")) != nil {
			return
		}
		was := b.before
		if b.append(10) != nil {
			return
		}
		raw := b.before // contains the lost group, but not the last one
		now, err := os.ReadFile(b.path())
		if err != nil {
			rt.Fatal(err)
		}
		lost := 0
		for at := 0; at < len(raw); at += blockSize {
			if !bytes.Equal(raw[at:at+blockSize], was[at:at+blockSize]) && (lost == 0 || rapid.Bool().Draw(rt, "block")) {
				copy(now[at:], was[at:at+blockSize])
				lost++
			}
		}
		if err := os.WriteFile(b.path(), now, 0o600); err != nil {
			rt.Fatal(err)
		}
		if groups, err := b.read(); !errors.Is(err, journal.ErrDamaged) {
			rt.Fatalf("%d blocks are lost: %d groups, %v", lost, len(groups), err)
		}
	})
}

func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		reason string
		spoil  func(t *testing.T, b *book)
		id     journal.ID
		want   error
		text   string
	}{
		"Missing": {"", func(t *testing.T, b *book) { remove(t, b.path()) }, ours, journal.ErrMissing, "is missing"},
		"Cut":     {"its end is gone", func(t *testing.T, b *book) { truncate(t, b.path(), headerSize+3*blockSize) }, ours, journal.ErrDamaged, "it has 5632 bytes, but was created with 20480"},
		"Empty":   {"all of it is gone", func(t *testing.T, b *book) { truncate(t, b.path(), 0) }, ours, journal.ErrDamaged, "byte 0"},
		"Link":    {"a name of something else", func(t *testing.T, b *book) { link(t, b.path()) }, ours, journal.ErrOther, "was not created by this program"},
		"Another": {"the journal of another database", func(*testing.T, *book) {}, journal.ID{9}, journal.ErrOther, "belongs to another database"},
		"Older": {"put back from before", func(t *testing.T, b *book) {
			old, err := os.ReadFile(b.path())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(b.append(100), os.WriteFile(b.path(), old, 0o600)); err != nil {
				t.Fatal(err)
			}
			b.filled = len(b.groups)
		}, ours, journal.ErrOther, "is older than the database"},
		"Newer": {"the database is put back from before", func(t *testing.T, b *book) {
			for range 40 {
				b.log.Filled(b.groups[len(b.groups)-1].End)
				if err := b.append(1000); err != nil {
					t.Fatal(err)
				}
			}
			b.filled = 1
		}, ours, journal.ErrOther, "is newer than the database"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := open(t, t.TempDir())
			defer b.log.Close()
			if err := b.append(10); err != nil {
				t.Fatal(err)
			}
			tc.spoil(t, b)
			_, err := b.readAs(tc.id)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), b.path()) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	b := open(t, t.TempDir())
	defer b.log.Close()
	if err := b.append(17 * blockSize); !errors.Is(err, journal.ErrTooLarge) {
		t.Errorf("more than a segment: %v", err)
	}
	var err error
	for err == nil {
		err = b.append(100)
	}
	if !errors.Is(err, journal.ErrFull) || len(b.groups) != 32 {
		t.Errorf("after %d groups: %v", len(b.groups), err)
	}
	// The position at which reading begins must not be overwritten: the first segment is free only after a group in the
	// second one is filled.
	for _, tc := range []struct {
		filled int
		want   error
	}{{16, journal.ErrFull}, {17, nil}} {
		b.filled = tc.filled
		b.log.Filled(b.from())
		if err := b.append(100); !errors.Is(err, tc.want) {
			t.Errorf("%d groups are filled: %v", tc.filled, err)
		}
	}
	info, err := os.Stat(b.path())
	if err != nil || info.Mode() != 0o600 || info.Size() != headerSize+2*small {
		t.Errorf("%v, %v", info, err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.Rename(path, path+"-"), os.Symlink(path+"-", path)); err != nil {
		t.Fatal(err)
	}
}

// TestRemove checks that Remove succeeds if the directory does not exist any more.
func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := journal.Remove(dir); err != nil {
		t.Errorf("where there is no directory: %v", err)
	}
}
