// Package recipes follows two recipes of CONTRIBUTING.md on a copy of the repository: a new kind and a new forwarded
// route. testdata has an addition for each file that a recipe names. The tests fail if a recipe and its additions name
// different files, or if the result is incomplete.
package recipes
