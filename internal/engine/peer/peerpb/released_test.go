package peerpb

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// released is a file with the protocol of the last release. Each line is an element that a peer of that release needs.
// A release may add lines, but never change or remove them.
const released = "testdata/released.txt"

func TestWhatIsReleasedStays(t *testing.T) {
	text, err := os.ReadFile(released)
	if err != nil {
		t.Fatal(err)
	}
	now := spoken(File_internal_engine_peer_peerpb_peer_proto)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		if !slices.Contains(now, line) {
			t.Errorf("a peer of the last release relies on %q, which is no more", line)
		}
	}
	if len(lines) < 50 {
		t.Errorf("only %d lines in %s", len(lines), released)
	}
	if t.Failed() {
		t.Logf("what is spoken now:\n%s", strings.Join(now, "\n"))
	}
}

// spoken lists the elements of the protocol: methods with their request and response types, and fields with number and
// type. Field names do not matter.
func spoken(file protoreflect.FileDescriptor) (lines []string) {
	for i := range file.Services().Len() {
		methods := file.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			lines = append(lines, fmt.Sprintf("rpc %s (%s%s) returns (%s%s)", m.FullName(),
				stream(m.IsStreamingClient()), m.Input().FullName(), stream(m.IsStreamingServer()), m.Output().FullName()))
		}
	}
	lines = append(lines, enums(file.Enums())...)
	return append(lines, messages(file.Messages())...)
}

func messages(all protoreflect.MessageDescriptors) (lines []string) {
	for i := range all.Len() {
		m := all.Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			switch {
			case f.Message() != nil:
				kind = string(f.Message().FullName())
			case f.Enum() != nil:
				kind = string(f.Enum().FullName())
			}
			oneof := ""
			if f.ContainingOneof() != nil {
				oneof = fmt.Sprintf(" of %s", f.ContainingOneof().Name())
			}
			lines = append(lines, fmt.Sprintf("%s %d: %s %s%s", m.FullName(), f.Number(), f.Cardinality(), kind, oneof))
		}
		lines = append(lines, enums(m.Enums())...)
		lines = append(lines, messages(m.Messages())...)
	}
	return lines
}

func enums(all protoreflect.EnumDescriptors) (lines []string) {
	for i := range all.Len() {
		values := all.Get(i).Values()
		for j := range values.Len() {
			v := values.Get(j)
			lines = append(lines, fmt.Sprintf("%s %d: %s", all.Get(i).FullName(), v.Number(), v.Name()))
		}
	}
	return lines
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}
