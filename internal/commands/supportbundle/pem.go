package supportbundle

import "bytes"

// maxKey is more than any private key has, with what a log puts before each of its lines.
const maxKey = 64 << 10

// privateKeys finds those in PEM, also where only their beginning or their end is there. Each
// line may have a time of its own before it.
func (t *text) privateKeys() {
	open, last := -1, 0 // where one begins; where the one before ended
	t.each(t.raw, "-----", func(from, to int) int {
		begins, end := t.label(to)
		switch {
		case end == 0:
			return from + 1
		case begins && open < 0:
			open = from
		case !begins && open >= 0:
			t.cross(open, end)
			open, last = -1, end
		case !begins:
			t.cross(max(last, from-maxKey), end)
			last = end
		}
		return end
	})
	if open >= 0 {
		t.cross(open, len(t.raw))
	}
}

// label is what a PEM text begins or ends with, of a private key, at i; else end is 0.
func (t *text) label(i int) (begins bool, end int) {
	begins = t.has(i, "begin ")
	if !begins && !t.has(i, "end ") {
		return false, 0
	}
	end = min(t.run(i, ofLabel), i+maxName)
	if !bytes.Contains(t.raw[i:end], []byte("PRIVATE KEY")) || !t.has(end, "-----") {
		return false, 0
	}
	return begins, end + len("-----")
}

var ofLabel = setOf(letters + digits + " ")

// keyLines finds the lines of a key of which neither beginning nor end is there, as three or more
// lines of base64 that PEM and MIME break.
func (t *text) keyLines() {
	const least = 3
	n, begin, public := 0, 0, false
	for at := 0; at < len(t.raw); {
		end := t.lineEnd(at)
		from, ok := t.pemLine(at, end)
		switch {
		case ok && n == 0:
			begin, n = from, 1
		case ok:
			n++
		default:
			line := t.raw[at:end]
			if n >= least && !public {
				t.cross(begin, t.lastKeyLine(at, end))
			}
			n, public = 0, bytes.Contains(line, []byte("-----BEGIN ")) && !bytes.Contains(line, []byte("PRIVATE"))
		}
		at = end + 1
	}
	if n >= least && !public {
		t.cross(begin, len(t.raw))
	}
}

// lastKeyLine is where a line ends that is the last of a key, and shorter; else where it begins.
func (t *text) lastKeyLine(at, end int) int {
	if last := t.run(t.run(t.stamp(at), ofBlank), ofBase64); t.run(last, ofSpace) >= end {
		return last
	}
	return at
}

// pemLine reports whether a line ends with a word as PEM breaks base64, and where that begins.
func (t *text) pemLine(at, end int) (from int, ok bool) {
	if end > at && t.raw[end-1] == '\r' {
		end--
	}
	from = end
	for from > at && end-from < 80 && ofBase64[t.raw[from-1]] {
		from--
	}
	if n := end - from; n != 64 && n != 76 || from > at && !ofBlank[t.raw[from-1]] {
		return 0, false
	}
	return from, !isHex(t.raw[from:end])
}

func isHex(value []byte) bool {
	for _, c := range value {
		if c |= 0x20; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
