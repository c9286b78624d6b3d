// Package slash spells distinguished names as the key server shows them and names
// transport principals by. Its clients that hold a certificate spell them alike.
package slash

import (
	"crypto/x509/pkix"
	"fmt"
	"strings"
)

// attributeNames maps the usual attribute types to their short names (RFC 4519
// and, for the mail address, PKCS#9). Others show as dotted numbers.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L",
	"2.5.4.8": "ST", "2.5.4.9": "street", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title",
	"2.5.4.17": "postalCode", "2.5.4.42": "GN", "0.9.2342.19200300.100.1.25": "DC",
	"0.9.2342.19200300.100.1.1": "UID", "1.2.840.113549.1.9.1": "emailAddress",
}

// slashEscaper keeps the form unambiguous: a slash or a backslash inside a
// value is escaped, so a value can never look like a further component.
var slashEscaper = strings.NewReplacer(`\`, `\\`, `/`, `\/`)

// Name returns a distinguished name slash-prefixed and slash-separated in
// the order of the certificate, for instance /C=DE/O=Example/CN=Root.
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
