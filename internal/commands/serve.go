package commands

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/audit/tree"
	"github.com/keyserver-operator/keyserver-operator/internal/auth/session"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
	"github.com/keyserver-operator/keyserver-operator/internal/engine/peer"
	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/monotonic"
	"github.com/keyserver-operator/keyserver-operator/internal/server"
	"github.com/keyserver-operator/keyserver-operator/internal/server/admission"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	server.Config
	logLevel string
}

func (o *serveOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.Listen, "listen", ":8443", "address of the HTTPS API")
	f.BoolVar(&o.InsecureHTTP, "insecure-http", false, "serve plain HTTP; refused unless --listen is a loopback address")
	f.StringVar(&o.TLSCert, "tls-cert", "", "PEM certificate chain of the API; default: issued by the internal CA, see DIR/ca.crt")
	f.StringVar(&o.TLSKey, "tls-key", "", "PEM private key of --tls-cert; both files are read again when they change")
	f.StringVar(&o.TLSMinVersion, "tls-min-version", server.TLS13, "oldest TLS version of the API: 1.3, or 1.2 with modern cipher suites")
	f.StringVar(&o.ExternalURL, "external-url", "", "URL of the API for clients and DPoP proofs; needed if its host is no name of the certificate, or its port is not that of --listen")
	f.BoolVar(&o.Console, "console", false, "serve the web console at /console/")
	f.StringVar(&o.DataDir, "data-dir", "keyserver-data", "directory of the embedded database, the CA certificate and the key-encryption key; the start migrates the database of an older release, and leaves the schema of the next release unchanged")
	f.DurationVar(&o.DataDirWait, "data-dir-wait", 0, "how long the start waits if another process uses --data-dir, at most 5m; 0: the start fails immediately")
	f.StringVar(&o.CAFile, "ca-file", "", "file for a copy of the internal CA's certificate, for readers without access to --data-dir")
	f.StringVar(&o.DatabaseURL, "database-url", "", "PostgreSQL URL, with one or more hosts; default: the embedded database in --data-dir. One replica migrates the database when it starts, see docs/upgrade.md")
	f.IntVar(&o.DatabaseMaxConnections, "database-max-connections", server.DefaultLimits().DatabaseMaxConnections, "maximum connections of this process to PostgreSQL; see docs/capacity.md")
	f.StringVar(&o.KEK, "kek", "", "URL of the key-encryption key, for instance base64key://... or kmsv2:///path.sock; default, or \"file\": DIR/kek, created at the first start")
	f.StringVar(&o.KEKPrevious, "kek-previous", "", "URL of the key-encryption key that --kek replaces, or \"file\": DIR/kek; needed until GET /api/custody shows previousNeeded false at every replica")
	f.Int64Var(&o.MinFreeBytes, "min-free-bytes", 0, "minimum free bytes on the volume of --data-dir; below it the service is not ready; default: a tenth of the volume, at most 5 GiB")
	f.Uint32Var(&o.SystemID, "system-id", 0, "system id of this key server, fixed at the first start; default at the first start: 1")
	f.StringVar(&o.ServerName, "server-name", "keyserver", "name of this key server in certificates")
	f.DurationVar(&o.CheckpointInterval, "checkpoint-interval", tree.DefaultInterval, "longest delay until the signed audit tree contains a new audit row")
	f.StringSliceVar(&o.AuditSinks, "audit-sink", nil, "URL of a receiver of audit rows: stdout:, https://HOST/PATH, syslog+tls://HOST:PORT or otlp://HOST:PORT; at most 8, see docs/guides/audit-sinks.md")
	f.StringVar(&o.AuditArchive, "audit-archive", "", "URL of the audit archive: file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER; default: none")
	f.DurationVar(&o.AuditRetention, "audit-retention", 0, "remove older audit rows from the database if they are in --audit-archive; 0: never")
	f.DurationVar(&o.BackupEvery, "backup-every", 0, "interval of backups, at least 1m; 0: no backups")
	f.StringVar(&o.BackupTo, "backup-to", "", "destination of backups: a directory, file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER")
	f.IntVar(&o.BackupKeep, "backup-keep", server.DefaultBackupKeep, "number of the newest backups of this key server to keep in --backup-to; 0: all")
	f.StringVar(&o.BackupRecipient, "backup-recipient", "", "age recipient (age1...) of the backups; its identity decrypts them")
	f.StringVar(&o.ReplicateTo, "replicate-to", "", "destination of a replica of the embedded database, about a second behind, for restore --at: a directory, file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER; default: none")
	f.StringVar(&o.ReplicateRecipient, "replicate-recipient", "", "age recipient (age1...) of the replica; its identity decrypts it")
	f.DurationVar(&o.ReplicateKeep, "replicate-keep", server.DefaultReplicateKeep, "how far back restore --at can go, at least 1h; 0: no limit")
	f.StringSliceVar(&o.Witnesses, "witness", nil, "URL=VKEY of a witness (C2SP tlog-witness) that cosigns the audit tree; may be given several times")
	f.IntVar(&o.WitnessQuorum, "witness-quorum", 0, "number of witnesses (--witness and peers) that must cosign a checkpoint before rows below it are pruned")
	f.StringSliceVar(&o.WitnessClients, "witness-client", nil, "VKEY of a log, in addition to those of peers, whose checkpoints /api/witness/add-checkpoint cosigns; may be given several times")
	f.StringVar(&o.ExternalListen, "external-listen", ":9443", "address of the mutual TLS listener for peers; empty: off")
	f.StringVar(&o.Deployment, "deployment", string(keyserver.Unified), "unified: Administrator also holds the Security Officer's operations; split: it does not")
	f.StringVar(&o.BootstrapOfficerPasswordFile, "bootstrap-officer-password-file", "", "file with the first password of officer, if duties are split; default: generated in DIR/bootstrap-officer-password")
	f.StringVar(&o.BootstrapPasswordFile, "bootstrap-password-file", "", "file with the first password of admin; default: generated in DIR/bootstrap-password, unless --bootstrap-service-account is given")
	f.StringVar(&o.BootstrapServiceAccount, "bootstrap-service-account", "", "NAMESPACE:NAME of the service account that is the first administrator, by its tokens of --oidc-issuer; admin is then created only with --bootstrap-password-file")
	f.BoolVar(&o.BreakGlass, "break-glass", false, "while this process runs, allow operations without the approval that the approval policy requires; each use is logged as an error and has a row in the audit log")
	f.StringVar(&o.Admission, "admission", server.AdmissionOff, "required: serve only while --release-manifest admits this build; off: always")
	f.StringVar(&o.ReleaseKey, "release-key", "", "PEM public key (Ed25519, PKIX) that verifies release manifests")
	f.StringVar(&o.ReleaseManifest, "release-manifest", "", "file of the release manifest, read again every --admission-retry")
	f.DurationVar(&o.AdmissionRetry, "admission-retry", admission.DefaultRetry, "how often the release manifest is read")
	f.DurationVar(&o.PeerTimeout, "peer-timeout", peer.DefaultTimeout, "how long a peer may take to respond")
	f.DurationVar(&o.SessionIdle, "session-idle", session.DefaultIdle, "a session unused for this long ends")
	f.DurationVar(&o.SessionLifetime, "session-lifetime", session.DefaultLifetime, "a session ends after this long")
	f.DurationVar(&o.ScopedLifetime, "scoped-lifetime", session.DefaultScopedLifetime, "a scoped credential ends after this long, unless its login requests another lifetime")
	f.StringVar(&o.RequireProof, "require-proof", string(session.DemandNone), "logins that must bind their session to a DPoP key or a client certificate: off, people (password and ldap) or all")
	f.StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil, "networks (CIDR) of proxies whose X-Forwarded-For is trusted as the client's address; default: none")
	o.bindLimits(f)
	bindProviders(f, &o.Providers)
	f.StringVar(&o.MetricsListen, "metrics-listen", "", "address of /metrics over plain HTTP; default: off")
	bindTracing(f, &o.Tracing)
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (o *serveOptions) bindLimits(f *pflag.FlagSet) {
	def := server.DefaultLimits()
	f.IntVar(&o.MaxSessions, "max-sessions", def.MaxSessions, "maximum live sessions of all replicas together; one principal may have a quarter of them")
	f.IntVar(&o.MaxSessionsPerPrincipal, "max-sessions-per-principal", def.MaxSessionsPerPrincipal, "maximum sessions from logins of one principal")
	f.IntVar(&o.MaxDerivedSessions, "max-derived-sessions", def.MaxDerivedSessions, "maximum sessions derived from one session")
	f.IntVar(&o.MaxInFlight, "max-requests-per-session", def.MaxInFlight, "maximum concurrent requests of one session")
	f.IntVar(&o.MaxRequests, "max-requests", def.MaxRequests, "maximum concurrent requests of the process")
	f.IntVar(&o.MaxWaiting, "max-waiting", def.MaxWaiting, "maximum open long polls of the process")
	f.IntVar(&o.MaxStreams, "max-streams", def.MaxStreams, "maximum messages that the process processes while it reads them")
	f.IntVar(&o.MaxConnections, "max-connections", def.MaxConnections, "maximum open connections to the API")
	f.IntVar(&o.MaxConnectionsPerAddress, "max-connections-per-address", def.MaxConnectionsPerAddress, "maximum open connections of one address (IPv6: of one /64 network); a trusted proxy may use all of --max-connections")
	f.IntVar(&o.MaxStrangers, "max-strangers", def.MaxStrangers, "maximum concurrent requests without a session")
	f.IntVar(&o.MaxStrangersPerAddress, "max-strangers-per-address", def.MaxStrangersPerAddress, "maximum concurrent requests without a session from one address (IPv6: from one /64 network)")
	f.Int64Var(&o.MaxSpoolBytes, "max-spool-bytes", def.MaxSpoolBytes, "maximum stored bytes of messages that precede the name of their key in the request")
	f.Int64Var(&o.MaxSpoolBytesPerSession, "max-spool-bytes-per-session", def.MaxSpoolBytesPerSession, "maximum of these bytes for one session")
	f.IntVar(&o.MaxLogins, "max-logins", def.MaxLogins, "maximum passwords hashed at the same time, 19 MiB each; default: half of the cores")
	f.IntVar(&o.MaxProofs, "max-proofs", def.MaxProofs, "maximum used DPoP proofs that the process remembers")
}

// ServerDefaults returns the configuration of serve without any flag. It has no logger.
func ServerDefaults() server.Config {
	var o serveOptions
	o.bind(pflag.NewFlagSet("serve", pflag.ContinueOnError))
	o.identify()
	return o.Config
}

// identify sets the version and the clocks.
func (o *serveOptions) identify() {
	o.Version, o.Steady = program.BuildVersion(programName), monotonic.New()
	o.Clock = o.Steady.Now
}

// complete sets the logger, the version and the clocks, and validates the options.
func (o *serveOptions) complete(errOut io.Writer) error {
	logger, err := program.NewLogger(errOut, o.logLevel)
	if err != nil {
		return err
	}
	o.Logger = logger
	o.identify()
	if err := o.Validate(); err != nil {
		return program.Usage(err)
	}
	return nil
}

func newServe() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a key server that serves /api over HTTPS",
		Long: "Run a key server that serves /api over HTTPS, with an embedded database or with\n" +
			"PostgreSQL. Each flag can also be set as an environment variable: --data-dir as\n" +
			"KEYSERVER_DATA_DIR.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE: program.RunService(func(cmd *cobra.Command) error {
			if err := o.complete(cmd.ErrOrStderr()); err != nil {
				return err
			}
			o.Stdout = cmd.OutOrStdout()
			return serve(cmd.Context(), o, o.Stdout)
		}),
	}
	o.bind(cmd.Flags())
	return cmd
}

// serve runs a key server until ctx ends or the server fails, and then drains it.
func serve(ctx context.Context, o serveOptions, out io.Writer) error {
	s, err := server.Start(ctx, o.Config)
	if err != nil {
		return err
	}
	if s.OfficerPasswordFile() != "" {
		fmt.Fprintf(out, "first start: the password of %q is in %s\n", "officer", s.OfficerPasswordFile())
	}
	if s.PasswordFile() != "" {
		fmt.Fprintf(out, "first start: the password of %q is in %s\n", "admin", s.PasswordFile())
	}
	fmt.Fprintf(out, "ready: %s (system id %d, %s)\n", s.URL(), s.SystemID(), s.Database())
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-s.Failed():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), program.DrainTime)
	defer cancel()
	if err := s.Shutdown(drain); err != nil && failure == nil {
		return fmt.Errorf("stop: %w", err)
	}
	return failure
}
