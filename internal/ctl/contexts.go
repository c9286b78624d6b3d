package ctl

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (o *options) newContexts() *cobra.Command {
	group := &cobra.Command{Use: "contexts", Short: "Which key servers are known here, and which one is used", Args: unknown, RunE: help}
	list := &cobra.Command{
		Use: "list", Short: "List what is known, and who is logged in", Args: noArgs,
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
			s, all, err := knowing(args[0])
			if err != nil {
				return err
			}
			all.Current = args[0]
			return s.saveSettings(all)
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Forget one, with its session; log out first, or that stays open", Args: oneContext,
		RunE: func(_ *cobra.Command, args []string) error {
			s, all, err := knowing(args[0])
			if err != nil {
				return err
			}
			if err := s.forget(args[0]); err != nil {
				return err
			}
			delete(all.Contexts, args[0])
			if all.Current == args[0] {
				all.Current = ""
			}
			return s.saveSettings(all)
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
		return usagef("%s takes the name of one context; see %s --help", cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// knowing is what was logged in to before, that context among it.
func knowing(name string) (*store, settings, error) {
	s, all, err := known()
	if _, there := all.Contexts[name]; err == nil && !there {
		err = unknownContext(name, all)
	}
	return s, all, err
}

func unknownContext(name string, all settings) error {
	return &Failure{exitNotFound, fmt.Errorf("there is no context %q; there are: %s", name, strings.Join(all.names(), ", "))}
}

// newCompletion prints what a shell reads.
func newCompletion(root *cobra.Command) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print what bash, zsh or fish complete a command line by",
		Long: "Print what bash, zsh or fish complete a command line by. For this shell:\n\n" +
			"  source <(keyserver-operator ctl completion bash)\n\n" +
			"Of kubectl's plugin, kubectl completes by itself where kubectl_complete-keyserver is\n" +
			"another name of this program in PATH.",
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("give one of %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			top := root.Root()
			switch args[0] {
			case "bash":
				return top.GenBashCompletionV2(cmd.OutOrStdout(), true)
			case "zsh":
				return top.GenZshCompletion(cmd.OutOrStdout())
			case "fish":
				return top.GenFishCompletion(cmd.OutOrStdout(), true)
			default:
				return usagef("there is no completion for %q; give one of %s", args[0], strings.Join(shells, ", "))
			}
		},
	}
}
