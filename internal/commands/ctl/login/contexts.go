package login

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// Status says whether a session is stored for the chosen context, for which principal and key server, and what to do
// next. It reads only local files, so it returns at once and cannot know whether the key server has ended the session.
// program is the name with which the user starts the program.
func (f *Flags) Status(program string, now time.Time) (string, error) {
	h, err := f.find()
	if err != nil {
		return "", err
	}
	if h.place.Server == "" {
		return fmt.Sprintf("not logged in (context %s); log in: %s login --server URL", h.name, program), nil
	}
	if !h.LoggedIn() {
		return fmt.Sprintf("not logged in to %s (context %s); log in: %s login", h.place.Server, h.name, program), nil
	}
	who, until := keyserver.Sanitize(h.session.Principal), h.session.ExpiresAt.UTC().Format(time.RFC3339)
	if !now.Before(h.session.ExpiresAt) {
		return fmt.Sprintf("the session of %s at %s ended at %s (context %s); log in again: %s login", who, h.place.Server, until, h.name, program), nil
	}
	return fmt.Sprintf("logged in to %s as %s until %s (context %s), unless the key server ended the session; ask it: %s whoami", h.place.Server, who, until, h.name, program), nil
}

func newContexts() *cobra.Command {
	group := cmdline.Group("contexts", "Manage the stored key servers and their sessions")
	list := &cobra.Command{
		Use: "list", Short: "List the contexts and their sessions", Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, all, err := openStore()
			if err != nil {
				return err
			}
			for _, name := range all.names() {
				mark, who := " ", "no session"
				if name == all.Current {
					mark = "*"
				}
				if held, err := s.session(name); err != nil {
					who = err.Error()
				} else if held != nil {
					who = held.Principal + " until " + held.ExpiresAt.UTC().Format(time.RFC3339)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s  %s  %s\n", mark, name, all.Contexts[name].Server, keyserver.Sanitize(who))
			}
			return nil
		},
	}
	use := &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Args: oneContext,
		RunE: func(_ *cobra.Command, args []string) error {
			return changing(args[0], func(_ *store, all *settings) error {
				all.Current = args[0]
				return nil
			})
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Delete a context and its stored session; log out first, or the session stays open", Args: oneContext,
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
			if _, all, err := openStore(); err == nil && len(args) == 0 {
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

// changing changes the settings. It fails if there is no context with this name.
func changing(name string, how func(s *store, all *settings) error) error {
	s, err := newStore(os.Getenv)
	if err != nil {
		return err
	}
	return s.withLock(func() error {
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
	return &cmdline.Failure{Code: cmdline.ExitNotFound, Err: fmt.Errorf("there is no context %q; the contexts are: %s", name, strings.Join(all.names(), ", "))}
}
