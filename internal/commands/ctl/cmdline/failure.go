package cmdline

import "fmt"

// Exit codes. All programs have the first two (docs/adr/0024).
const (
	ExitFailed      = 1
	ExitUsage       = 2 // the command line was wrong; nothing was sent
	ExitRefused     = 3 // the key server rejected the request
	ExitNotFound    = 4 // the key server has no such object
	ExitNotVerified = 5 // conflict with the current state, or the second read does not show the write
	ExitUnavailable = 6 // the key server is unavailable
)

// Failure is an error with an exit code.
type Failure struct {
	Code int
	Err  error
}

// Error returns the text of the error.
func (f *Failure) Error() string { return f.Err.Error() }

// ProgramExit returns the exit code of the program.
func (f *Failure) ProgramExit() int { return f.Code }

// Unwrap returns the error without its exit code.
func (f *Failure) Unwrap() error { return f.Err }

// Usagef returns a Failure of a wrong command line.
func Usagef(format string, args ...any) error {
	return &Failure{ExitUsage, fmt.Errorf(format, args...)}
}
