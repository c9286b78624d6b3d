package ctl

import (
	"context"
	_ "embed"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
)

const (
	// completesWithin is the longest time that a completion waits for the key server.
	completesWithin = time.Second
	// maxCandidates is the maximum number of candidates of one completion.
	maxCandidates = 200
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

// ids completes the first path parameter with ids from the listing at the preceding path. Without such a listing, it
// completes nothing.
func (o *options) ids(t *table, v *verb) cobra.CompletionFunc {
	var listing *verb
	if before, _, ok := strings.Cut(v.route.Path, "/{"); ok {
		for _, other := range t.verbs {
			if other.route.Path == before && other.route.Method == http.MethodGet && len(other.answer.fields) > 0 {
				listing = other
			}
		}
	}
	if listing == nil {
		return cobra.NoFileCompletions
	}
	complete := o.rowsOf(listing, &v.path[0])
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// completeFlags completes the flags that name principals, roles and keys.
func (o *options) completeFlags(cmd *cobra.Command, t *table, v *verb) {
	for _, list := range [][]field{v.query, v.body} {
		for i := range list {
			if listing := t.listingOf(v, &list[i]); listing != nil {
				_ = cmd.RegisterFlagCompletionFunc(list[i].flag, o.rowsOf(listing, &list[i])) // fails only without the flag
			}
		}
	}
}

// listingOf returns the listing whose rows have the possible values of a field, or nil.
func (t *table) listingOf(v *verb, f *field) *verb {
	is := &f.value
	if is.kind == array {
		is = is.of
	}
	switch of, _ := listed(v, nil); {
	case of != nil && f.name == "name":
		return v
	case is.refKind == refPrincipal:
		return t.find("principals list")
	case is.name == "HexID" && (f.name == "roleId" || f.name == "roleIds"):
		return t.find("roles list")
	case is.name == "HiddenLink":
		return t.find("keys list")
	default:
		return nil
	}
}

// rowsOf completes a field with the values in the first page of a listing. On a failure, it completes nothing.
func (o *options) rowsOf(listing *verb, f *field) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if o.complete(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := o.caller(listing)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(cmd.Context(), completesWithin)
		defer cancel()
		var out []string
		for _, query := range queries(cmd, listing) {
			r := &request{query: query.Encode()}
			if (&input{verb: listing}).check(r) != nil {
				break
			}
			answer, err := o.ask(ctx, c, listing, r)
			if err != nil {
				break
			}
			out = append(out, candidates(listing, answer, f, typed)...)
		}
		return out[:min(len(out), maxCandidates)], cobra.ShellCompDirectiveNoFileComp
	}
}

// queries returns the queries that read the first page of a listing. If the listing requires a type, like the listing
// of principals, there is one query for each type, or only one if the command line has the type.
func queries(cmd *cobra.Command, listing *verb) []url.Values {
	query := url.Values{}
	var all []url.Values
	for _, f := range listing.query {
		switch {
		case f.name == "limit":
			query.Set(f.name, strconv.Itoa(maxCandidates))
		case f.required:
			types := f.choices()
			if given := cmd.Flags().Lookup(f.flag); given != nil && slices.Contains(types, given.Value.String()) {
				types = []string{given.Value.String()}
			}
			for _, one := range types {
				all = append(all, url.Values{f.name: {one}})
			}
		}
	}
	if all == nil {
		return []url.Values{query}
	}
	for _, one := range all {
		maps.Copy(one, query)
	}
	return all
}

// candidates returns the values of a field in the rows of a response that begin with the typed text. An id gets the
// name in its row, or the algorithm and state of a key, as description. The value is the member with the name of the
// field, or otherwise the first member with its schema.
func candidates(v *verb, answer jsontext.Value, f *field, typed string) []string {
	of, rows := listed(v, answer)
	if of == nil {
		return nil
	}
	spelled := f.value.name
	if f.kind == array {
		spelled = f.of.name
	}
	at := slices.IndexFunc(of.fields, func(p property) bool { return p.name == f.name && p.value.name == spelled })
	if at < 0 {
		at = slices.IndexFunc(of.fields, func(p property) bool { return p.value.name == spelled })
	}
	if at < 0 {
		return nil
	}
	var out []string
	seen := map[string]bool{}
	for _, row := range rows {
		var all members[jsontext.Value]
		if json.Unmarshal(row, &all) != nil {
			continue
		}
		value, _ := all.get(of.fields[at].name)
		text := printable(plain(value))
		if seen[text] || !strings.HasPrefix(text, typed) {
			continue
		}
		seen[text] = true
		var about []string
		for _, name := range []string{"name", "algorithm", "state"} {
			if said, ok := all.get(name); ok && name != of.fields[at].name {
				about = append(about, printable(plain(said)))
			}
		}
		out = append(out, strings.TrimRight(text+"\t"+strings.Join(about, " "), "\t"))
	}
	return out
}
