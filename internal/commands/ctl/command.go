package ctl

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/auditlog"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/cmdline"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/diagnose"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/login"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// options has the flags of all verbs.
type options struct {
	login.Flags
	output  string
	columns []string
	field   string
	purpose string
	to      string
	all     bool
	watches bool
	owner   string
	reason  string
	routes  *table // finds the route of a request that is shown to an approver
}

// Command returns the command called use, with all verbs below it.
func Command(use string) (*cobra.Command, error) {
	t, err := newTable()
	if err != nil {
		return nil, err
	}
	o := &options{routes: t}
	root := cmdline.Group(use, "Command-line client for the key server API")
	root.Long = "Command-line client for the key server API. Each route of /api is a verb. Log in first,\n" +
		"then use the verbs, for example:\n\n" +
		"  login --server https://keys.example:8443 --ca-file ca.crt\n" +
		"  keys mint --algorithm HMAC-SHA384\n" +
		"  audit tail\n" +
		"  why --operation macData --hidden-link KEY --principal-id ID\n\n" +
		"Responses are printed to standard output: as a table, with -o json or -o yaml as the key\n" +
		"server sent them, or with --field NAME only one member. Errors are printed to standard\n" +
		"error as the key server reports them.\n\n" +
		"Exit codes: 0 success; 1 failure; 2 the command line was wrong, and nothing was sent;\n" +
		"3 the key server refused the request, or there is no session; 4 not found; 5 a conflict,\n" +
		"or the second read differs from the write: check the object before you try again; 6 the\n" +
		"key server does not respond now.\n\n" +
		"Environment variables can set --server, --context, --ca-file, --external-url and\n" +
		"--output, and the flags of login, doctor, support-bundle and audit verify. For example,\n" +
		"KEYSERVER_CA_FILE sets --ca-file."
	help := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !program.IsTerminal(cmd.OutOrStdout()) {
			return help(cmd, args)
		}
		return o.status(cmd)
	}
	o.bind(root)
	root.AddCommand(login.Commands(&o.Flags, o.complete)...)
	root.AddCommand(newCompletion(root))
	root.AddCommand(diagnose.Commands(&o.Flags)...)
	for _, v := range t.verbs {
		t.add(root, v.words, o.command(t, v, v.words[len(v.words)-1]))
	}
	for _, a := range aliases {
		v := t.find(a.verb)
		words := strings.Fields(a.name)
		if group := child(root, words[0]); len(words) == 1 && group != nil {
			o.become(t, v, group)
			continue
		}
		cmd := o.command(t, v, words[len(words)-1])
		cmd.Short += " Same as " + a.verb + "."
		t.add(root, words, cmd)
	}
	for _, f := range followers {
		words := strings.Fields(f.name)
		t.add(root, words, o.follow(t, f, words[len(words)-1]))
	}
	for words, cmd := range auditlog.Commands(&o.Flags) {
		t.add(root, strings.Fields(words), cmd)
	}
	uniqueSummaries(root)
	return root, nil
}

// status prints whether the user is logged in and where, and how to find the commands.
func (o *options) status(cmd *cobra.Command) error {
	if err := o.complete(cmd); err != nil {
		return err
	}
	is, err := o.Status(cmd.CommandPath(), time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\nall commands: %s --help\n", is, cmd.CommandPath())
	return err
}

// uniqueSummaries makes the summaries of groups unique. If several groups have the same summary, only the group with
// the most verbs keeps it. The other groups get the summaries of their verbs.
func uniqueSummaries(root *cobra.Command) {
	same := map[string][]*cobra.Command{}
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.HasSubCommands() {
				same[c.Short] = append(same[c.Short], c)
				walk(c)
			}
		}
	}
	walk(root)
	for _, groups := range same {
		most := slices.MaxFunc(groups, func(a, b *cobra.Command) int { return len(leaves(a)) - len(leaves(b)) }) // if equal, the outer one
		for _, g := range groups {
			if g == most || g.Annotations[verbOfItsOwn] != "" {
				continue
			}
			var said []string
			for _, l := range leaves(g) {
				sentence, _, _ := strings.Cut(l.Short, ". ")
				said = append(said, strings.TrimRight(sentence, ".")+".")
			}
			g.Short = strings.Join(said, " ")
		}
	}
}

// verbOfItsOwn is the annotation of a group that is also a verb.
const verbOfItsOwn = "verb"

// leaves returns the commands below a group that are not groups.
func leaves(of *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range of.Commands() {
		if c.HasSubCommands() {
			all = append(all, leaves(c)...)
		} else {
			all = append(all, c)
		}
	}
	return all
}

// add adds a command below the groups of its nouns, and creates missing groups.
func (t *table) add(root *cobra.Command, words []string, cmd *cobra.Command) {
	at := root
	for n := 1; n < len(words); n++ {
		next := child(at, words[n-1])
		if next == nil {
			next = cmdline.Group(words[n-1], t.about[strings.Join(words[:n], " ")])
			at.AddCommand(next)
		}
		at = next
	}
	// A word can be a verb and a noun: "crypto mac verify" and "crypto mac verify ...". Then one command is both.
	if there := child(at, cmd.Name()); there != nil {
		cmd.AddCommand(there.Commands()...)
		at.RemoveCommand(there)
	}
	at.AddCommand(cmd)
}

func child(of *cobra.Command, name string) *cobra.Command {
	for _, c := range of.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// bind adds the flags of all verbs.
func (o *options) bind(root *cobra.Command) {
	o.Bind(root)
	root.PersistentFlags().StringVarP(&o.output, "output", "o", asTable, "output format: table, json or yaml")
	cmdline.Choices(root, "output", asTable, asJSON, asYAML)
}

// global lists the flags that an environment variable can set. Fields of requests are not listed, because a variable
// such as KEYSERVER_NAME would set the name of every new role.
var global = []string{"server", "context", "ca-file", "external-url", "output"}

// complete sets missing flags from environment variables. It removes white space around all values.
func (o *options) complete(cmd *cobra.Command) error {
	var first error
	local := cmd.LocalNonPersistentFlags()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		mine := slices.Contains(global, f.Name) || cmd.Name() == "login" && local.Lookup(f.Name) != nil && f.Name != "help"
		value, ok := os.LookupEnv("KEYSERVER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
		if !mine || first != nil {
			return
		}
		switch {
		case f.Changed && f.Value.String() != strings.TrimSpace(f.Value.String()):
			value = f.Value.String()
		case f.Changed || !ok:
			return
		}
		if err := cmd.Flags().Set(f.Name, strings.TrimSpace(value)); err != nil {
			first = cmdline.Usagef("environment variable for --%s: %w", f.Name, err)
		}
	})
	if first == nil && !slices.Contains([]string{asTable, asJSON, asYAML}, o.output) {
		first = cmdline.Usagef("--output is %q; it must be table, json or yaml", o.output)
	}
	return first
}

// command returns the command of a verb.
func (o *options) command(t *table, v *verb, use string) *cobra.Command {
	cmd := &cobra.Command{Use: use}
	o.become(t, v, cmd)
	return cmd
}

// become makes cmd the command for a verb, with flags and help.
func (o *options) become(t *table, v *verb, cmd *cobra.Command) {
	in := v.inputs(cmd)
	cmd.Use = cmd.Name()
	for _, p := range v.path {
		cmd.Use += " " + strings.ToUpper(dashed(p.name))
	}
	if cmd.HasSubCommands() { // cmd is also a noun
		cmd.Use = cmd.Name()
		cmd.Annotations = map[string]string{verbOfItsOwn: v.route.Name}
	}
	cmd.Short, cmd.Long = v.route.Summary, v.describe()
	cmd.Args = v.arguments
	cmd.ValidArgsFunction = o.ids(t, v)
	o.completeFlags(cmd, t, v)
	f := cmd.Flags()
	if v.json {
		f.StringSliceVar(&o.columns, "columns", nil, "comma-separated members to show as columns, in full width")
		f.StringVar(&o.field, "field", "", "print only this member of the response, as text, such as id or principal.id; of a list, the member of each row")
		cmdline.Choices(cmd, "field", v.fields()...)
	} else {
		f.StringVar(&o.to, "to", "", "file to write the response to, which must not exist; - or default: standard output")
	}
	if pages(v) != nil {
		f.BoolVar(&o.all, "all", false, "request all pages, not only the first")
	}
	if v.watchable() {
		f.BoolVar(&o.watches, "watch", false, "after all rows, print each new or changed row until Ctrl-C; -o json then prints one line per row")
	}
	if v.route.Makes != "" {
		f.StringVar(&o.owner, "owned-by", "", "owner mark of created objects; other owners then cannot manage them")
	}
	if !v.open {
		f.StringVar(&o.purpose, "for", "", "purpose of the request in a few words, for the audit log")
	}
	if v.approvable() {
		f.StringVar(&o.reason, "ask", "", "submit the request for approval instead of executing it; the value is the reason for the approvers")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.complete(cmd); err != nil {
			return err
		}
		if cmd.Flags().Changed("ask") {
			return o.askOthers(cmd, t.find(approvalVerb), v, in, args)
		}
		if o.watches {
			return o.watch(cmd, v, in, args)
		}
		return o.run(cmd, v, in, args)
	}
}

// describe returns the help text of a route.
func (v *verb) describe() string {
	var b strings.Builder
	b.WriteString(wrap(v.route.Summary, helpWidth))
	for _, p := range v.path {
		fmt.Fprintf(&b, "\n\n%s", wrap(strings.ToUpper(dashed(p.name))+": "+p.help(), helpWidth))
	}
	needs := "Requires a session, but no operation of a role."
	switch names := v.route.OperationNames(); {
	case len(names) > 0:
		needs = "Requires a role with: " + strings.Join(names, ", ") + "."
	case v.open || v.maybe:
		needs = "Requires no session."
	}
	fmt.Fprintf(&b, "\n\n%s", wrap(needs+" "+v.route.Method+" "+v.route.Path+".", helpWidth))
	if v.stream != "" {
		f := flagName(v.stream)
		fmt.Fprintf(&b, "\n\n%s", wrap("The message is read from --"+f+"-file or from standard input, and is sent unchanged and as a stream.", helpWidth))
	}
	return b.String()
}

const helpWidth = 88

// wrap breaks a text into lines of at most width characters, at spaces.
func wrap(text string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch n := len([]rune(word)); {
		case column == 0:
			column = n
		case column+1+n > width:
			b.WriteByte('\n')
			column = n
		default:
			b.WriteByte(' ')
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}

// arguments requires one argument for each path parameter.
func (v *verb) arguments(cmd *cobra.Command, args []string) error {
	if len(args) == len(v.path) {
		return nil
	}
	if len(args) > len(v.path) {
		return cmdline.Usagef("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[len(v.path)], cmd.CommandPath())
	}
	missing := v.path[len(args)]
	return cmdline.Usagef("%s is missing: %s; see %s --help", strings.ToUpper(dashed(missing.name)), missing.help(), cmd.CommandPath())
}
