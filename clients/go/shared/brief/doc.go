// Package brief shortens text for people: messages of conditions and events, responses of
// plugins, reports. Its results are valid UTF-8 if its arguments are.
//
// May import: nothing
package brief
