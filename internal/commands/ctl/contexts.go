package ctl

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

func (o *options) newContexts() *cobra.Command {
	group := cmdline.Group("contexts", "Which key servers are known here, and which one is used")
	list := &cobra.Command{
		Use: "list", Short: "List what is known, and who is logged in", Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, all, err := known()
			if err != nil {
				return err
			}
			for _, name := range all.names() {
				mark, who := " ", "nobody is logged in"
				if name == all.Current {
					mark = "*"
				}
				if held, err := s.session(name); err != nil {
					who = err.Error()
				} else if held != nil {
					who = held.Principal + " until " + held.ExpiresAt.UTC().Format(time.RFC3339)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s  %s  %s\n", mark, name, all.Contexts[name].Server, printable(who))
			}
			return nil
		},
	}
	use := &cobra.Command{
		Use: "use NAME", Short: "Use another one from now on", Args: oneContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return changing(args[0], func(_ *store, all *settings) error {
				all.Current = args[0]
				return nil
			})
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Forget one, with its session; log out first, or that stays open", Args: oneContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return changing(args[0], func(s *store, all *settings) error {
				if err := s.forget(args[0]); err != nil {
					return err
				}
				delete(all.Contexts, args[0])
				if all.Current == args[0] {
					all.Current = ""
				}
				return nil
			})
		},
	}
	for _, cmd := range []*cobra.Command{use, remove} {
		cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if _, all, err := known(); err == nil && len(args) == 0 {
				return all.names(), cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	group.AddCommand(list, use, remove)
	return group
}

func oneContext(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cmdline.Usagef("%s takes the name of one context; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// changing changes the settings, of which that context has to be a part.
func changing(name string, how func(s *store, all *settings) error) error {
	s, err := newStore(os.Getenv)
	if err != nil {
		return err
	}
	return s.alone(func() error {
		all, err := s.settings()
		if _, there := all.Contexts[name]; err == nil && !there {
			err = unknownContext(name, all)
		}
		if err == nil {
			err = how(s, &all)
		}
		if err != nil {
			return err
		}
		return save(s.settingsFile(), all)
	})
}

func unknownContext(name string, all settings) error {
	return &cmdline.Failure{Code: cmdline.ExitNotFound, Err: fmt.Errorf("there is no context %q; there are: %s", name, strings.Join(all.names(), ", "))}
}

// bashOwn is what the script for bash needs where the package bash-completion is missing.
//
//go:embed completion.bash
var bashOwn []byte

// newCompletion prints what a shell reads.
func newCompletion(root *cobra.Command) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print what bash, zsh or fish complete a command line by",
		Long: "Print what bash, zsh or fish complete a command line by. For this shell:\n\n" +
			"  source <(" + programName + " completion bash)\n\n" +
			"Of kubectl's plugin, kubectl completes by itself where kubectl_complete-keyserver is\n" +
			"another name of this program in PATH.",
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cmdline.Usagef("give one of %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			top := root.Root()
			switch args[0] {
			case "bash":
				if _, err := cmd.OutOrStdout().Write(bashOwn); err != nil {
					return err
				}
				return top.GenBashCompletionV2(cmd.OutOrStdout(), true)
			case "zsh":
				return top.GenZshCompletion(cmd.OutOrStdout())
			case "fish":
				return top.GenFishCompletion(cmd.OutOrStdout(), true)
			default:
				return cmdline.Usagef("there is no completion for %q; give one of %s", args[0], strings.Join(shells, ", "))
			}
		},
	}
}
