package ctl

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/keyserver-operator/keyserver-operator/clients/go/shared/values"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// refKind is the kind of object that an identifier refers to. For these kinds, the command line accepts more formats
// than the route.
type refKind int

const (
	refAny refKind = iota
	refPrincipal
	refOperation
)

// setRefKind sets the kind of object to which the member name refers. All decimal ids are principal ids.
func (v *value) setRefKind(name string) {
	is := v
	if is.kind == array {
		is = is.of
	}
	switch {
	case is.name == "DecimalID", is.name == "HexID" && slices.Contains(principals, name):
		is.refKind = refPrincipal
	case is.name == "HexID" && name == "operations" && v.kind == array:
		is.refKind = refOperation
	}
}

// convertText converts a text to the format of the route: a time in RFC 3339 to an encoded time, the name or key of an
// operation to its id, and a principal id to the other base. Other text stays unchanged; the server's decoder may
// reject it.
func (v *value) convertText(flag, said string) (string, error) {
	switch {
	case v.name == "Stamp":
		if at, err := time.Parse(time.RFC3339, said); err == nil {
			var raw [8]byte
			binary.BigEndian.PutUint64(raw[:], uint64(max(0, at.UnixMilli())))
			return base64.StdEncoding.EncodeToString(raw[:]), nil
		}
	case v.refKind == refPrincipal:
		return principalAs(v.name, said), nil
	case v.refKind == refOperation && !isHexID(said):
		op, ok := operationCalled(said)
		if !ok {
			return "", cmdline.Usagef("%s is %q; it must be the name or the key of an operation, or its 16 hexadecimal digits: see keyserverctl operations list", flag, said)
		}
		return op.ID.Hex(), nil
	case v.name == "OperationKey":
		if op, ok := operationCalled(said); ok {
			return op.Key, nil
		}
	}
	return said, nil
}

func operationCalled(said string) (keyserver.Operation, bool) {
	for _, op := range keyserver.Operations {
		if strings.EqualFold(op.Name, said) || strings.EqualFold(op.Key, said) {
			return op, true
		}
	}
	return keyserver.Operation{}, false
}

func operationKeys() []string {
	keys := make([]string, len(keyserver.Operations))
	for i, op := range keyserver.Operations {
		keys[i] = op.Key
	}
	return keys
}

func isHexID(s string) bool {
	return len(s) == 16 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// principalAs converts a principal id to the schema want: HexID or DecimalID. 16 digits without a leading zero are
// ambiguous and stay unchanged. The prefix 0x marks hexadecimal digits.
func principalAs(want, said string) string {
	number, base := said, 10
	if digits, ok := strings.CutPrefix(strings.ToLower(said), "0x"); ok {
		number, base = digits, 16
	} else if isHexID(said) && (want == "HexID" || said[0] == '0' || strings.Trim(said, "0123456789") != "") {
		base = 16
	}
	n, err := strconv.ParseUint(number, base, 64)
	switch {
	case err != nil || strings.HasPrefix(number, "+"):
		return said
	case want == "HexID":
		return values.IDFromUint64(n).Hex()
	default:
		return strconv.FormatUint(n, 10)
	}
}

// convertJSON applies convertText to each string in a JSON value.
func (v *value) convertJSON(flag string, in jsontext.Value) (jsontext.Value, error) {
	switch {
	case in.Kind() == '"' && v.kind == text:
		said, err := v.convertText(flag, plain(in))
		if err != nil || said == plain(in) {
			return in, err
		}
		return quote(said)
	case in.Kind() == '{' && v.kind == object:
		return v.convertObject(flag, in)
	case in.Kind() == '[' && v.kind == array:
		return v.convertList(flag, in)
	default:
		return in, nil
	}
}

// convertObject applies convertJSON to the members of an object. An invalid object stays unchanged, because the
// server's decoder rejects it with a reason.
func (v *value) convertObject(flag string, in jsontext.Value) (jsontext.Value, error) {
	var all members[jsontext.Value]
	if json.Unmarshal(in, &all) == nil {
		for i := range v.fields {
			f := &v.fields[i]
			one, there := all.get(f.name)
			if !there {
				continue
			}
			spelled, err := f.convertJSON(flag+"."+f.name, one)
			if err != nil {
				return nil, err
			}
			all.set(f.name, spelled)
		}
		return marshal(all)
	}
	return in, nil
}

func (v *value) convertList(flag string, in jsontext.Value) (jsontext.Value, error) {
	var list []jsontext.Value
	if json.Unmarshal(in, &list) == nil {
		for i := range list {
			spelled, err := v.of.convertJSON(flag+"["+strconv.Itoa(i)+"]", list[i])
			if err != nil {
				return nil, err
			}
			list[i] = spelled
		}
		return marshal(list)
	}
	return in, nil
}
