package values

// Rights is the bitmask of an ACL entry (contract 3.1).
type Rights uint32

// The rights bits.
const (
	Read           Rights = 0x01
	Write          Rights = 0x02
	Owner          Rights = 0x04
	MandatoryGroup Rights = 0x08
	HostMatrix     Rights = 0x10

	AllRights = Read | Write | Owner | MandatoryGroup | HostMatrix
)

// rightNames lists the names in display order.
var rightNames = []struct {
	bit  Rights
	name string
}{
	{Owner, "OWNER"}, {Read, "READ"}, {Write, "WRITE"},
	{MandatoryGroup, "MANDATORY_GROUP"}, {HostMatrix, "HOST_MATRIX"},
}

// RightNames returns the names of all rights, for schemas and messages.
func RightNames() []string {
	names := make([]string, len(rightNames))
	for i, r := range rightNames {
		names[i] = r.name
	}
	return names
}

// ParseRight returns the bit with the given name.
func ParseRight(name string) (Rights, bool) {
	for _, r := range rightNames {
		if r.name == name {
			return r.bit, true
		}
	}
	return 0, false
}

// Widen returns the rights that the key server stores for r: WRITE adds READ, OWNER adds
// READ and WRITE.
func (r Rights) Widen() Rights {
	if r&Owner != 0 {
		r |= Write
	}
	if r&Write != 0 {
		r |= Read
	}
	return r
}

// Has reports whether r has all bits of want.
func (r Rights) Has(want Rights) bool { return r&want == want }

// Names returns the names of the bits that are set.
func (r Rights) Names() []string {
	names := []string{}
	for _, n := range rightNames {
		if r.Has(n.bit) {
			names = append(names, n.name)
		}
	}
	return names
}
