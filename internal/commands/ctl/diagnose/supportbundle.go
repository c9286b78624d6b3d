package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/cluster"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl/login"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/doctor"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/supportbundle"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/urltext"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

type supportBundleOptions struct {
	once    login.OneTimeFlags
	in      cluster.Options
	flags   *login.Flags
	metrics []string
	logs    []string
	lines   int64
	output  string
}

// maxSources is the maximum number of values of each of --metrics-url and --log.
const maxSources = 32

func newSupportBundle(flags *login.Flags) *cobra.Command {
	o := supportBundleOptions{flags: flags}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Pack versions, settings, conditions, metrics and log lines for support, without secrets",
		Long: "Write a .tar.gz for the diagnosis of an installation. It contains only the fields of an\n" +
			"allow list (docs/guides/support-bundle.md):\n\n" +
			"  key server (--server, --context): version, parts, settings, keyring, CAs and peers,\n" +
			"    with the session of login or with --password-file\n" +
			"  cluster (--cluster): the conditions of all objects; Pods, events and logs of the\n" +
			"    operator's namespace\n" +
			"  the metrics of --metrics-url, and the log lines of --log\n\n" +
			"From logs it takes the lines of this project's programs, with the attributes of the list.\n" +
			"It contains no key, password, token or session id, and reads no Secret. It contains names\n" +
			"of objects and of principals, and error texts with the scheme and the host of URLs.\n\n" +
			"Its file files.json says which files are missing or incomplete, and why, and how many\n" +
			"lines, attributes and metrics were omitted. A bundle has at most 500 files of 4 MiB; of a\n" +
			"longer log it contains the end. A response of the cluster may take 10 seconds, 32 MiB and\n" +
			"500,000 values. It reads 5000 objects of each kind, 10,000 events, of which it packs the\n" +
			"newest 1000, and 50 Pods. One of their logs may take 15 seconds, and all of them 2\n" +
			"minutes; after that, the bundle has the part that was read. A file of --log may take 10\n" +
			"seconds.\n\n" +
			"The file gets its name when it is complete. If the command is interrupted, there is no\n" +
			"file, and the exit code is 1.",
		Args: program.NoArgs,
		RunE: program.RunE(o.run),
	}
	f := cmd.Flags()
	o.once.BindPassword(f)
	o.in.Bind(f)
	f.StringSliceVar(&o.metrics, "metrics-url", nil, "URL of the metrics of a process, for instance http://127.0.0.1:8082/metrics; may be given several times")
	f.StringSliceVar(&o.logs, "log", nil, "log file, the end of which is packed; may be given several times")
	f.Int64Var(&o.lines, "log-lines", 5000, "with --cluster: number of lines from the end of each log")
	f.StringVarP(&o.output, "output", "o", "", "file to write, which must not exist; - is standard output; default: support-bundle-TIME.tar.gz")
	return cmd
}

func (o *supportBundleOptions) check() error {
	switch {
	case len(o.metrics) > maxSources || len(o.logs) > maxSources:
		return program.Usagef("--metrics-url and --log: each must be given at most %d times", maxSources)
	case o.lines < 1 || o.lines > 100_000:
		return program.Usagef("--log-lines is %d; it must be from 1 to 100000", o.lines)
	}
	for _, text := range o.metrics {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return program.Usagef("--metrics-url must be http://HOST:PORT/metrics or https://HOST:PORT/metrics, without a user")
		}
	}
	if o.in.Cluster {
		return cluster.CheckNamespace(o.in.Namespace)
	}
	return nil
}

// asks reports whether the bundle includes a key server: a flag names one, or no flag names another source.
func (o *supportBundleOptions) asks() bool {
	return o.flags.Chosen() || !o.in.Cluster && len(o.metrics) == 0 && len(o.logs) == 0
}

func (o *supportBundleOptions) run(cmd *cobra.Command) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	var h *login.Context
	if o.asks() {
		if h, err = o.flags.FindWithoutSession(); err != nil {
			return err
		}
	}
	now := time.Now()
	if o.output == "" {
		o.output = "support-bundle-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	w, err := o.pack(cmd, h, now)
	switch {
	case err != nil && cmd.Context().Err() != nil:
		return errors.New("the command was interrupted before the bundle was complete; there is no bundle")
	case err != nil:
		return err
	}
	files, missing, leftOut := 0, 0, 0
	for _, l := range w.Files() {
		files++
		leftOut += l.LeftOut
		if l.Error != "" {
			missing++
		}
	}
	notes := cmd.OutOrStdout()
	if o.output == program.StandardOutput {
		notes = cmd.ErrOrStderr()
	}
	_, err = fmt.Fprintf(notes, "%s: %d files, of which %d are missing or incomplete (files.json says why); %d lines, attributes and metrics that are not in the allow list were omitted\n",
		o.output, files, missing, leftOut)
	return err
}

// pack writes the bundle to a temporary file and renames the complete file, so that the file --output is never
// incomplete. If h is nil, the bundle includes no key server.
func (o *supportBundleOptions) pack(cmd *cobra.Command, h *login.Context, now time.Time) (_ *supportbundle.Writer, err error) {
	dir := filepath.Dir(o.output)
	if o.output == program.StandardOutput {
		dir = "" // the system directory for temporary files
	} else if _, err := os.Lstat(o.output); err == nil { // fail now, not after collecting all data
		return nil, fmt.Errorf("--output: %s: %w", o.output, fs.ErrExist)
	}
	f, err := os.CreateTemp(dir, ".support-bundle-*.partial")
	if err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			at.Path = o.output // errors name the file of the user instead of the temporary file
		}
		return nil, fmt.Errorf("--output: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.Name())) }()
	// A cancellation deletes the file immediately, because requests in progress may end later.
	keep := context.AfterFunc(cmd.Context(), func() { _ = os.Remove(f.Name()) })
	w := supportbundle.New(cmd.Context(), f, now)
	if err := errors.Join(o.fill(cmd, w, h, now), w.Close(), f.Close()); err != nil {
		return nil, err
	}
	if !keep() {
		return nil, cmd.Context().Err()
	}
	if o.output == program.StandardOutput {
		err = copyOut(cmd.OutOrStdout(), f.Name())
	} else {
		err = put(f.Name(), o.output)
	}
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return w, nil
}

func copyOut(to io.Writer, file string) (err error) {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(to, f)
	return err
}

// put renames a file. It fails if the new name exists.
func put(file, name string) error {
	err := os.Link(file, name)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // the file system has no hard links
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), os.Rename(file, name)); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func (o *supportBundleOptions) fill(cmd *cobra.Command, w *supportbundle.Writer, h *login.Context, now time.Time) error {
	about := map[string]string{
		"made": now.UTC().Format(time.RFC3339), "program": program.BuildVersion("keyserverctl").Banner, "release": version.String(), "commit": version.Commit(),
		"system": runtime.GOOS + "/" + runtime.GOARCH, "server": "",
	}
	if h != nil {
		about["server"] = urltext.Origin(h.Server())
	}
	if o.in.Cluster {
		w.Redact(o.in.Secrets()...)
	}
	if err := w.JSON("about.json", about); err != nil {
		return err
	}
	if h != nil {
		if err := o.fillServer(cmd, w, h); err != nil {
			return err
		}
	}
	if o.in.Cluster {
		if err := o.fillCluster(cmd, w); err != nil {
			return err
		}
	}
	for i, at := range o.metrics {
		if err := w.Metrics(cmd.Context(), "metrics/"+strconv.Itoa(i+1)+".txt", at); err != nil {
			return err
		}
	}
	for i, file := range o.logs {
		if err := w.Tail("logs/"+strconv.Itoa(i+1)+"-"+filepath.Base(file), file); err != nil {
			return err
		}
	}
	return nil
}

func (o *supportBundleOptions) fillServer(cmd *cobra.Command, w *supportbundle.Writer, h *login.Context) error {
	w.Redact(h.Secret())
	a, err := o.once.Read(cmd, h)
	if a.Admin != nil {
		w.Redact(a.Admin.Password)
	}
	asked, end := doctor.Server{}, func() {}
	if err == nil {
		asked, end, err = ask(cmd.Context(), h, a, "keyserver-operator-support-bundle")
	}
	defer end()
	var usage program.UsageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		return w.Missing("server", err)
	case asked.Refused != nil: // some responses need no session
		if err := w.Missing("server/login", asked.Refused); err != nil {
			return err
		}
	}
	return w.Service(cmd.Context(), asked.Client, asked.LoggedIn)
}

// Time limits for one log of a cluster, and for all logs together.
const (
	logTime  = 15 * time.Second
	logsTime = 2 * time.Minute
)

func (o *supportBundleOptions) fillCluster(cmd *cobra.Command, w *supportbundle.Writer) error {
	c, err := o.in.Connect(cmd.Context())
	if err != nil {
		return w.Missing("cluster", err)
	}
	return w.Cluster(cmd.Context(), supportbundle.Cluster{
		Client: c, Namespace: o.in.Namespace, Lines: o.lines, LogTime: logTime, LogsTime: logsTime,
		Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
	})
}
