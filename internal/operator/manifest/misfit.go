package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CheckType decodes an object into a Go value. If a field has a wrong type, the error names the field and not its
// value.
func CheckType(u *unstructured.Unstructured, into any) error {
	raw, err := json.Marshal(u.Object)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		return errors.New("has a value in a wrong format, for example invalid base64 or an invalid time")
	}
	field := wrong.Field
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(field, ".")...)
	if members, is := value.(map[string]any); is && err == nil && wrong.Type.Kind() == reflect.String {
		field = memberThatIsNoText(field, members)
	}
	return fmt.Errorf("%s: must be %s", field, wanted(wrong.Type))
}

// checkMetadataType does the same for the metadata only.
func checkMetadataType(u *unstructured.Unstructured) error {
	metadata := &unstructured.Unstructured{Object: map[string]any{"metadata": u.Object["metadata"]}}
	return CheckType(metadata, &metav1.PartialObjectMetadata{})
}

// memberThatIsNoText returns the path of the first map entry whose value is not text. The decoder's error names only
// the map.
func memberThatIsNoText(field string, members map[string]any) string {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if _, is := members[key].(string); !is && members[key] != nil {
			return field + "[" + key + "]"
		}
	}
	return field
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text; put it in quotes"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Bool:
		return "true or false"
	default:
		return "a number in its range"
	}
}
