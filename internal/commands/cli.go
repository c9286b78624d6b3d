package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/fault"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
)

// Exit codes of every command. A plan has its own meaning of 2. Go's runtime
// ends with 2, too, where it finds no memory or another goroutine panics, which
// nothing here can change; the output then ends in a stack and not in a
// sentence.
const (
	exitOK    = 0
	exitError = 1 // the command was understood and failed, or the program did
	exitUsage = 2 // the command line was wrong; nothing was done
)

// endsWithin is what a command that was told to end has to put in order what it has begun.
const endsWithin = 10 * time.Second

// serves marks, as an annotation, those that run until they are told to end: they have what
// draining takes.
const serves = "serves"

// Values of serves.
const (
	asService  = "until it is told to end"
	atTerminal = "until it is told to end, or its terminal is closed"
)

// envPrefix starts the environment variable that stands for a flag.
const envPrefix = "KEYSERVER_"

// usageError is a wrong command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs one command line of keyserver-operator.
func Main(args []string, in io.Reader, out, errOut io.Writer) (code int) {
	return Run("keyserver-operator", args, in, out, errOut)
}

// Run runs one command line of the program that was started by that name, and returns the
// exit code. SIGINT, SIGTERM and SIGHUP cancel the command; a second one kills the process,
// as does waiting for what does not answer, a pipe for instance. serve, manager, agent and
// kms ignore SIGHUP.
func Run(program string, args []string, in io.Reader, out, errOut io.Writer) (code int) {
	name, args, plugin := called(program, args)
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(errOut, "%s: a mistake of the program, please report it: %s\n%s", name, oneLine(fmt.Errorf("%v", p)), debug.Stack())
			code = exitError
		}
	}()
	root, err := newProgram(plugin, args)
	if err != nil {
		fmt.Fprintf(errOut, "%s: %s\n", name, oneLine(err))
		return exitError
	}
	cmd, _, err := root.Find(args)
	drains := err == nil && cmd.Annotations[serves] != ""
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if drains {
		// Otherwise a write to standard output or standard error kills the process once
		// nobody reads it any more.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	switch {
	case signal.Ignored(syscall.SIGHUP): // as nohup has it
	case drains && cmd.Annotations[serves] != atTerminal:
		// There is nothing to reload: files are read again when they change.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	default:
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		<-ctx.Done()
		stop()
		if drains {
			return
		}
		select {
		case <-ended:
		case <-time.After(endsWithin):
			fmt.Fprintf(errOut, "%s: told to end, and still waiting for something after %s: what it had begun is cut off\n", name, endsWithin)
			os.Exit(exitError)
		}
	}()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err = root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if code, own := ownExit(err); own {
		return code
	}
	var usage usageError
	wrong := errors.As(err, &usage)
	if !wrong { // a usage error shows how a URL is written, and none that was given
		err = urltext.Error(err)
	}
	fmt.Fprintf(errOut, "%s: %s\n", name, oneLine(err))
	var failure *ctl.Failure
	switch {
	case errors.As(err, &failure):
		return failure.Code
	case wrong:
		return exitUsage
	}
	return exitError
}

// newProgram has the commands of the program.
func newProgram(plugin bool, args []string) (root *cobra.Command, err error) {
	if plugin {
		root, err = newPlugin()
	} else {
		root, err = newRoot(args)
	}
	if err != nil {
		return nil, err
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	})
	refuseUnknownHelp(root)
	return root, nil
}

func newRoot(args []string) (*cobra.Command, error) {
	root := &cobra.Command{
		Use:   "keyserver-operator",
		Short: "Declarative trust and key operations: operator, HTTP API and key server in one binary",
		Long: "Declarative trust and key operations: operator, HTTP API and key server in one binary.\n\n" +
			"Exit codes: 0 done; 1 it failed, and a sentence on standard error says why; 2 the\n" +
			"command line was wrong, and nothing was done. Of plan, 2 says that there are changes.\n" +
			"A program that the system ended for want of memory may end with 2 as well: only\n" +
			"together with a report is it the answer of a plan. Of ctl there are more.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; see keyserver-operator --help", args[0])
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	verbs, err := newCtl(args)
	if err != nil {
		return nil, err
	}
	serving := []*cobra.Command{newServe(), newManager(), newAgent(), newKMS()}
	for _, cmd := range serving {
		cmd.Annotations = map[string]string{serves: asService}
	}
	up := newUp()
	up.Annotations = map[string]string{serves: atTerminal}
	root.AddCommand(serving...)
	root.AddCommand(up, verbs, newPlan(), newExport(), newAudit(), newDoctor(), newSupportBundle(), newBackup(), newRestore(), newMigrate(), newCustody(), newRelease(), newOpenAPI(), newReference(), newVersion())
	return root, nil
}

// refuseUnknownHelp has "help" refuse what it knows nothing of as the command
// itself would; as it comes, it shows a list and succeeds.
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

// noArgs refuses positional arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

// commands is a command that has others, and does nothing by itself.
func commands(use, short string, list ...*cobra.Command) *cobra.Command {
	names := make([]string, len(list))
	for i, one := range list {
		names[i] = one.Name()
	}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; %s has %s", args[0], use, strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(list...)
	return cmd
}

// ran is a command that is run once its flags are complete.
func ran(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := fromEnvironment(cmd.Flags()); err != nil {
			return err
		}
		return run(cmd)
	}
}

// runs is ran for a command that goes on until it is stopped: a variable of the environment
// that means nothing would be missed for as long.
func runs(run func(cmd *cobra.Command) error) func(*cobra.Command, []string) error {
	return ran(func(cmd *cobra.Command) error {
		if err := refuseUnknownVariables(cmd.Root(), os.Environ()); err != nil {
			return err
		}
		return run(cmd)
	})
}

// ofEnvironment marks a flag that nobody has given.
const ofEnvironment = "environment"

// fromEnvironment sets every flag that was not given from its environment
// variable: --data-dir from KEYSERVER_DATA_DIR. It removes white space around each value,
// and around each element of a list: files and templates often end in a newline.
func fromEnvironment(flags *pflag.FlagSet) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envName(f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" || first != nil {
			return
		}
		if err := flags.Set(f.Name, strings.TrimSpace(value)); err != nil {
			first = usagef("environment variable %s: %w", name, err)
			return
		}
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[ofEnvironment] = []string{name}
	})
	if first != nil {
		return first
	}
	flags.Visit(func(f *pflag.Flag) {
		if err := trim(f.Value); err != nil {
			first = usagef("--%s: %w", f.Name, err)
		}
	})
	return first
}

// trim removes white space around texts. Numbers and the like refuse it, and show it.
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

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// oneLine keeps an error to one line, so that it is one sentence to a person
// and one record to a log collector. What a terminal would act upon, such as
// an escape sequence in the name of a file or an object, does not reach it.
func oneLine(err error) string {
	lines := strings.FieldsFunc(fault.Explain(err), func(r rune) bool { return r == '\n' || r == '\r' })
	return keyserver.Shown(strings.Join(lines, "; "))
}
