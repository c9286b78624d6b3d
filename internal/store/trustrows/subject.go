package trustrows

import "strings"

const anyText = "%"

// likeEscaper escapes every metacharacter of LIKE except the wildcard.
var likeEscaper = strings.NewReplacer(`\`, `\\`, `_`, `\_`)

// subjectPattern is a pattern that is split at its wildcards.
type subjectPattern struct{ parts []string }

func newSubjectPattern(text string) subjectPattern {
	return subjectPattern{strings.Split(text, anyText)}
}

func (p subjectPattern) prefix() string { return p.parts[0] }

// end returns a value that is greater than every text with the prefix, because
// UTF-8 never contains the byte 0xff.
func (p subjectPattern) end() []byte { return append([]byte(p.prefix()), 0xff) }

func (p subjectPattern) like() string {
	return likeEscaper.Replace(strings.Join(p.parts, anyText))
}

// matches compares byte by byte: the parts must occur in order, the first at
// the start and the last at the end.
func (p subjectPattern) matches(subject string) bool {
	first, rest := p.parts[0], p.parts[1:]
	if len(rest) == 0 {
		return subject == first
	}
	subject, ok := strings.CutPrefix(subject, first)
	if !ok {
		return false
	}
	for _, part := range rest[:len(rest)-1] {
		_, after, ok := strings.Cut(subject, part)
		if !ok {
			return false
		}
		subject = after
	}
	return strings.HasSuffix(subject, rest[len(rest)-1])
}
