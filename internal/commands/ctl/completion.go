package ctl

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

// bashOwn has the shell functions of the package bash-completion that the script for bash calls.
//
//go:embed completion.bash
var bashOwn []byte

// newCompletion returns the command that prints a completion script.
func newCompletion(root *cobra.Command) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script for bash, zsh or fish",
		Long: "Print the completion script for bash, zsh or fish. To use it in bash:\n\n" +
			"  source <(" + programName + " completion bash)\n\n" +
			"kubectl completes the command lines of its plugin if this program is also in PATH\n" +
			"under the name kubectl_complete-keyserver.",
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cmdline.Usagef("SHELL: must be one of %s", strings.Join(shells, ", "))
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
				return cmdline.Usagef("SHELL: there is no completion script for %q; use one of %s", args[0], strings.Join(shells, ", "))
			}
		},
	}
}
