package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/clients/go/client"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// Exit codes of all commands. Only plan uses 2 differently. Go's runtime also exits with 2 if memory runs out or
// another goroutine panics, which a program cannot change. Then the output ends with a stack trace.
const (
	ExitOK    = 0
	ExitError = 1 // the command failed, or the program has a bug
	ExitUsage = 2 // the command line was wrong; nothing was done
)

// endsWithin is the longest time that a command may take to end after a signal.
const endsWithin = 10 * time.Second

// Serves is the annotation of commands that run until a signal, and then wait for open requests.
const Serves = "serves"

// Values of the annotation Serves. Only AtTerminal ends at SIGHUP.
const (
	AsService  = "until a signal ends it"
	AtTerminal = "until a signal ends it, or its terminal is closed"
)

// envPrefix is the prefix of environment variables for flags.
const envPrefix = "KEYSERVER_"

// UsageError is the error for a wrong command line.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Usage marks an error as a usage error (ExitUsage).
func Usage(err error) error { return UsageError{err} }

// Usagef returns a usage error.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Program is one of the programs of this project.
type Program struct {
	Name string // used in errors and in the help
	// Root creates the commands. It can omit commands that the arguments do not name.
	Root func(args []string) (*cobra.Command, error)
}

// Exit is an error that ends the program with this exit code, without a message.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Run runs one command line and returns the exit code. An error with a method ProgramExit chooses its own exit code.
// SIGINT, SIGTERM and SIGHUP cancel the command, and a second signal kills the process. A command that does not serve
// must end within ten seconds after the signal; otherwise the program exits with ExitError. Services (AsService) ignore
// SIGHUP.
func (p Program) Run(args []string, in io.Reader, out, errOut io.Writer) (code int) {
	defer func() {
		if mistake := recover(); mistake != nil {
			fmt.Fprintf(errOut, "%s: a bug in this program, please report it: %s\n%s", p.Name, OneLine(fmt.Errorf("%v", mistake)), debug.Stack())
			code = ExitError
		}
	}()
	root, err := p.Commands(args)
	if err != nil {
		fmt.Fprintf(errOut, "%s: %s\n", p.Name, OneLine(err))
		return ExitError
	}
	ctx, end := p.untilSignalled(root, args, errOut)
	defer end()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	return p.exitCode(root.ExecuteContext(ctx), errOut)
}

// untilSignalled returns a context that a signal ends. If a command that does not serve still runs endsWithin later,
// the process exits. The caller must call end when the command has ended.
func (p Program) untilSignalled(root *cobra.Command, args []string, errOut io.Writer) (ctx context.Context, end func()) {
	cmd, _, err := root.Find(args)
	drains := err == nil && cmd.Annotations[Serves] != ""
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if drains {
		// Otherwise a write to a closed standard output or standard error would kill the process.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	switch {
	case signal.Ignored(syscall.SIGHUP): // started by nohup
	case drains && cmd.Annotations[Serves] != AtTerminal:
		// A reload is not needed, because files are read again when they change.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	default:
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	ended := make(chan struct{})
	go func() {
		<-ctx.Done()
		stop()
		if drains {
			return
		}
		select {
		case <-ended:
		case <-time.After(endsWithin):
			fmt.Fprintf(errOut, "%s: the command did not end within %s after the signal: its unfinished work is cut off\n", p.Name, endsWithin)
			os.Exit(ExitError)
		}
	}()
	return ctx, func() {
		close(ended)
		stop()
	}
}

// exitCode prints the error of a command, and returns the exit code for it.
func (p Program) exitCode(err error, errOut io.Writer) int {
	if err == nil {
		return ExitOK
	}
	var silent Exit
	if errors.As(err, &silent) {
		return int(silent)
	}
	var usage UsageError
	wrong := errors.As(err, &usage)
	if !wrong { // usage errors contain example URLs and no real ones
		err = urltext.Error(err)
	}
	fmt.Fprintf(errOut, "%s: %s\n", p.Name, OneLine(err))
	var chosen interface{ ProgramExit() int } // not named ExitCode, because *exec.ExitError has such a method
	switch {
	case errors.As(err, &chosen):
		return chosen.ProgramExit()
	case wrong:
		return ExitUsage
	}
	return ExitError
}

// Commands returns the root command with the behaviour that all programs share.
func (p Program) Commands(args []string) (*cobra.Command, error) {
	root, err := p.Root(args)
	if err != nil {
		return nil, err
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	refuseUnknownHelp(root)
	return root, nil
}

// refuseUnknownHelp makes "help" reject unknown commands. By default it would print a list and succeed.
func refuseUnknownHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Args = func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			return about.ValidateArgs(rest)
		}
	}
}

// NoArgs returns a usage error if there are positional arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// Group returns a command that only has subcommands.
func Group(use, short string, list ...*cobra.Command) *cobra.Command {
	names := make([]string, len(list))
	for i, one := range list {
		names[i] = one.Name()
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usagef("unknown command %q; the commands of %s are %s", args[0], use, strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(list...)
	return cmd
}

// RunE returns a RunE function that sets missing flags from the environment and then calls run.
func RunE(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := fromEnvironment(cmd.Flags()); err != nil {
			return err
		}
		return run(cmd)
	}
}

// RunService is RunE for a command that serves. It also rejects unknown variables, which would otherwise stay unnoticed
// while the command runs.
func RunService(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return RunE(func(cmd *cobra.Command) error {
		if err := RefuseUnknownVariables(cmd.Root(), os.Environ()); err != nil {
			return err
		}
		return run(cmd)
	})
}

// FromVariable is the annotation of a flag whose value came from an environment variable.
const FromVariable = "environment"

// fromEnvironment sets each missing flag from its environment variable: --data-dir from KEYSERVER_DATA_DIR. It removes
// white space around values and list elements, because files and templates often end with a newline.
func fromEnvironment(flags *pflag.FlagSet) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" || first != nil {
			return
		}
		if err := flags.Set(f.Name, strings.TrimSpace(value)); err != nil {
			first = Usagef("environment variable %s: %w", name, err)
			return
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[FromVariable] = []string{name}
	})
	if first != nil {
		return first
	}
	flags.Visit(func(f *pflag.Flag) {
		if err := trim(f.Value); err != nil {
			first = Usagef("--%s: %w", f.Name, err)
		}
	})
	return first
}

// trim removes white space around texts and elements of lists. Other types reject white space.
func trim(v pflag.Value) error {
	if list, ok := v.(pflag.SliceValue); ok {
		trimmed := list.GetSlice()
		for i := range trimmed {
			trimmed[i] = strings.TrimSpace(trimmed[i])
		}
		return list.Replace(trimmed)
	}
	if bare := strings.TrimSpace(v.String()); v.Type() == "string" && bare != v.String() {
		return v.Set(bare)
	}
	return nil
}

// envName returns the name of the variable for a flag.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// OneLine returns the error as one line for people and for log collectors. It replaces characters that control a
// terminal, for example an escape sequence in a file name.
func OneLine(err error) string { return Line(fault.Explain(err)) }

// Line returns an untrusted text as one line, without characters that control a terminal.
func Line(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return keyserver.Sanitize(strings.Join(lines, "; "))
}

// RequireFlags returns a usage error if one of the flags is missing or empty.
func RequireFlags(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := cmd.Flags().Lookup(name)
		if !f.Changed || f.Value.String() == "" {
			return Usagef("--%s is missing; see %s --help", name, cmd.CommandPath())
		}
	}
	return nil
}

// ForbidFlags returns a usage error if one of the flags was given. why follows the flag's name in the error. Flags from
// environment variables are ignored, because all commands of a container have the same variables.
func ForbidFlags(cmd *cobra.Command, why string, flags ...string) error {
	for _, flag := range flags {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Changed && f.Annotations[FromVariable] == nil {
			return Usagef("--%s %s", flag, why)
		}
	}
	return nil
}

// CheckServer returns a usage error if server is not a valid value of --server.
func CheckServer(server string) error {
	if server == "" {
		return nil
	}
	if u, err := url.Parse(server); err == nil && u.User != nil {
		return Usagef("--server contains a user name or a password; give --username and --password-file instead")
	}
	if strings.HasSuffix(strings.TrimRight(server, "/"), "/api") {
		return Usagef("--server ends in /api; leave /api out, because each call adds it")
	}
	if _, err := client.New(client.Options{BaseURL: server}); err != nil {
		return Usagef("--server: %w", err)
	}
	return nil
}

// DrainTime is the maximum time that a program waits for open requests before it ends.
const DrainTime = 20 * time.Second

// OneFormat returns a usage error if --output was given. It is for commands that have only one output format.
func OneFormat(cmd *cobra.Command) error {
	return ForbidFlags(cmd, "does not apply: this command prints one format; leave it out", "output")
}
