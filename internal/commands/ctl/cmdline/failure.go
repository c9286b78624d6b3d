package cmdline

import "fmt"

// Exit codes. Those of every command come first (docs/adr/0024).
const (
	ExitFailed      = 1
	ExitUsage       = 2 // the command line was wrong; nothing was sent
	ExitRefused     = 3 // the service said no
	ExitNotFound    = 4 // or there is no such thing
	ExitNotVerified = 5 // or it does not go with what is there, or did not read back
	ExitUnavailable = 6 // or no answer could be had now
)

// Failure is an error with the exit code of its kind.
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
