// Package wire decodes requests strictly, by one table for each request type. The table is built once, by reflection,
// from the tags that package schema describes. The decoder, the OpenAPI document and the tests' table of invalid inputs
// use the same table. So the description of a field cannot differ from its check.
//
// Strict means that the decoder refuses an unknown or repeated member, null if it is not allowed, a wrong type, a
// missing member, a value out of its limits, a spelling that is not canonical, and data after the object. The refusal
// names the field and says what to send.
package wire
