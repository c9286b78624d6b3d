// Package schema has the wire types of /api: the requests and responses of the server and
// of package client. It does not depend on HTTP.
//
// The tags of a field describe it completely, so that the decoder, the OpenAPI document
// and the tests' table of bad inputs cannot disagree:
//
//	json:"name"             required; always present in a response
//	json:"name,omitzero"    optional; absent in a response if it is zero
//	path:"name" query:"name" a path segment or query parameter; next to a body
//	                        also json:"-"
//	limit:"1..128"          characters of a string, decoded bytes of a Base64,
//	                        value of a number; either side may be left out
//	trim:"true"             white space around the string is removed
//	items:"0..64"           length of an array
//	enum:"KeyState"         the only values: those of the enumeration in package wire
//	const:"a"               the only value
//	example:"-"             not in examples: it excludes another field that is in
//	                        them
//	secret:"true"           is never displayed, like a Secret
//	names:"principal"       in a request: the kind of object that the value names,
//	                        for approvals; "home" is the key server of the
//	                        principal in the same object, "route" the kind of the
//	                        route, "-" no object, or one whose id is never reused
//	doc:"..."               one sentence for the reference
//
// A required pointer may be null, an optional one may not: a request
// omits the field instead.
package schema
