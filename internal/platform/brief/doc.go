// Package brief shortens text for people: messages of conditions and events, answers of plugins,
// reports. What it returns is valid UTF-8 if its argument is.
//
// May import: nothing
package brief
