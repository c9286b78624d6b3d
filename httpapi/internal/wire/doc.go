// Package wire reads requests strictly by one table for each request type. The
// table is made once, by reflection over the tags that package schema
// describes; the decoder, the OpenAPI document and the tests' table of bad
// inputs all walk it, so that a field cannot be described in one way and
// checked in another.
//
// Strict means: an unknown or repeated member, null where it is not allowed, a
// wrong type, a missing member, a value out of its limits, a spelling that is
// not canonical and anything after the object are each refused, and the
// refusal names the field and says what to send.
package wire
