// Package schema holds the wire types of /api: what the server decodes and
// answers and what package client sends and reads. Nothing here knows HTTP.
//
// Each field says by its tags all that anybody needs to know about it, so that
// the decoder, the OpenAPI document and the table of bad inputs in the tests
// cannot disagree:
//
//	json:"name"             required; in an answer always present
//	json:"name,omitzero"    optional; in an answer absent when zero
//	path:"name" query:"name" a path segment or query parameter; next to a body
//	                        also json:"-"
//	limit:"1..128"          characters of a string, decoded bytes of a Base64,
//	                        value of a number; either side may be left out
//	trim:"true"             white space around the string is no part of it
//	items:"0..64"           length of an array
//	enum:"a,b"              the only values
//	example:"-"             left out of examples: it goes with another choice
//	                        than the one that they show
//	secret:"true"           is shown to nobody, as a Secret is
//	names:"principal"       of a request: what a value names, a kind that an
//	                        approval keeps; "home" is the key server of the
//	                        principal beside it, "route" what the route says,
//	                        "-" nothing that can become something else
//	doc:"..."               one sentence for the reference
//
// A required pointer may be null, an optional one may not: absent is how a
// request leaves a field out.
package schema
