// Package slash formats distinguished names. The key server displays them in this format, and uses it for the names of
// transport principals. Clients with a certificate use the same format.
package slash

import (
	"crypto/x509/pkix"
	"fmt"
	"strings"
)

// attributeNames maps common attribute types to their short names (RFC 4519; PKCS#9 for the mail address). Other types
// are shown as dotted numbers.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L",
	"2.5.4.8": "ST", "2.5.4.9": "street", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title",
	"2.5.4.17": "postalCode", "2.5.4.42": "GN", "0.9.2342.19200300.100.1.25": "DC",
	"0.9.2342.19200300.100.1.1": "UID", "1.2.840.113549.1.9.1": "emailAddress",
}

// slashEscaper escapes slashes and backslashes in values, so that no value looks like another component.
var slashEscaper = strings.NewReplacer(`\`, `\\`, `/`, `\/`)

// Name returns a distinguished name with a slash before each component, in the order of
// the certificate, for example /C=DE/O=Example/CN=Root.
func Name(name pkix.Name) string {
	var b strings.Builder
	attributes := name.Names
	if len(attributes) == 0 {
		attributes = flatten(name.ToRDNSequence())
	}
	for _, a := range attributes {
		key, ok := attributeNames[a.Type.String()]
		if !ok {
			key = a.Type.String()
		}
		fmt.Fprintf(&b, "/%s=%s", key, slashEscaper.Replace(fmt.Sprint(a.Value)))
	}
	return b.String()
}

func flatten(seq pkix.RDNSequence) []pkix.AttributeTypeAndValue {
	var out []pkix.AttributeTypeAndValue
	for _, set := range seq {
		out = append(out, set...)
	}
	return out
}
