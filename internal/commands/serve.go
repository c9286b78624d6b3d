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
	f.StringVar(&o.ExternalURL, "external-url", "", "URL by which clients reach the API, if not by a name of its certificate and the port of --listen; DPoP proofs are for it")
	f.BoolVar(&o.Console, "console", false, "serve the web console at /console/")
	f.StringVar(&o.DataDir, "data-dir", "keyserver-data", "directory of the embedded database, the CA certificate and the key-encryption key; a database of an older release is migrated at the start, one of the next release is served as it is")
	f.DurationVar(&o.DataDirWait, "data-dir-wait", 0, "how long a start waits while another process has --data-dir, at most 5m; 0: it is refused at once")
	f.StringVar(&o.CAFile, "ca-file", "", "write the internal CA's certificate to this file, too, for whoever must not read --data-dir")
	f.StringVar(&o.DatabaseURL, "database-url", "", "PostgreSQL URL, with one host or several; default: the embedded database in --data-dir; of several replicas one migrates it at its start, see docs/upgrade.md")
	f.IntVar(&o.DatabaseMaxConnections, "database-max-connections", server.DefaultLimits().DatabaseMaxConnections, "connections that this process may have to PostgreSQL; see docs/capacity.md")
	f.StringVar(&o.KEK, "kek", "", "URL of the key-encryption key, for instance base64key://... or kmsv2:///path.sock; default, or file: DIR/kek, made at the first start")
	f.StringVar(&o.KEKPrevious, "kek-previous", "", "URL of the key-encryption key whose place --kek takes, or file for DIR/kek; needed until GET /api/custody says otherwise")
	f.Int64Var(&o.MinFreeBytes, "min-free-bytes", 0, "the service is not ready while the volume of --data-dir has less than this free; default: a tenth of it, at most 5 GiB")
	f.Uint32Var(&o.SystemID, "system-id", 0, "system id of this key server; fixed at the first start, where the default is 1")
	f.StringVar(&o.ServerName, "server-name", "keyserver", "name of this key server in certificates")
	f.DurationVar(&o.CheckpointInterval, "checkpoint-interval", tree.DefaultInterval, "how far the signed tree over the audit trail may be behind its rows")
	f.StringSliceVar(&o.AuditSinks, "audit-sink", nil, "URL that the rows of the audit trail are sent to: stdout:, https://HOST/PATH, syslog+tls://HOST:PORT or otlp://HOST:PORT; up to 8 of them, see docs/operations.md")
	f.StringVar(&o.AuditArchive, "audit-archive", "", "URL of the archive of the audit trail: file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER; default: none")
	f.DurationVar(&o.AuditRetention, "audit-retention", 0, "audit rows that are older, and in --audit-archive, are removed from the database; 0: none")
	f.DurationVar(&o.BackupEvery, "backup-every", 0, "how often a backup is made, at least 1m; 0: none")
	f.StringVar(&o.BackupTo, "backup-to", "", "directory, file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER that backups are put into")
	f.IntVar(&o.BackupKeep, "backup-keep", server.DefaultBackupKeep, "how many backups of this key server are kept in --backup-to, the newest; 0: all")
	f.StringVar(&o.BackupRecipient, "backup-recipient", "", "recipient of age, age1..., whose identity opens the backups")
	f.StringVar(&o.ReplicateTo, "replicate-to", "", "directory, file:///DIRECTORY, s3://BUCKET, gs://BUCKET or azblob://CONTAINER that the embedded database is replicated to, about a second behind, for restore --at; default: none")
	f.StringVar(&o.ReplicateRecipient, "replicate-recipient", "", "recipient of age, age1..., whose identity opens the replica")
	f.DurationVar(&o.ReplicateKeep, "replicate-keep", server.DefaultReplicateKeep, "for how long restore --at can go back, at least 1h; 0: without end")
	f.StringSliceVar(&o.Witnesses, "witness", nil, "URL=VKEY of a witness (C2SP tlog-witness) that cosigns the audit tree; may be given often")
	f.IntVar(&o.WitnessQuorum, "witness-quorum", 0, "so many witnesses, those of --witness and peers, have to cosign a checkpoint before rows below it are pruned")
	f.StringSliceVar(&o.WitnessClients, "witness-client", nil, "VKEY of a log, besides those of peers, whose checkpoints are cosigned at /api/witness/add-checkpoint; may be given often")
	f.StringVar(&o.ExternalListen, "external-listen", ":9443", "address of the mutual TLS listener for peers; empty turns it off")
	f.StringVar(&o.Deployment, "deployment", string(keyserver.Unified), "unified: Administrator also holds the Security Officer's operations; split: it does not")
	f.StringVar(&o.BootstrapOfficerPasswordFile, "bootstrap-officer-password-file", "", "file with the first password of officer, where duties are split; default: generated into DIR/bootstrap-officer-password")
	f.StringVar(&o.BootstrapPasswordFile, "bootstrap-password-file", "", "file with the first password of admin; default: generated into DIR/bootstrap-password, unless there is --bootstrap-service-account")
	f.StringVar(&o.BootstrapServiceAccount, "bootstrap-service-account", "", "NAMESPACE:NAME of the service account whose tokens, of --oidc-issuer, are the first administrator's; admin is then made with --bootstrap-password-file only")
	f.BoolVar(&o.BreakGlass, "break-glass", false, "let through without an approval what the approval policy guards, as long as this process runs; each use is logged as an error and has a row in the audit trail")
	f.StringVar(&o.Admission, "admission", server.AdmissionOff, "required: serve only while --release-manifest admits this build; off: always")
	f.StringVar(&o.ReleaseKey, "release-key", "", "PEM public key (Ed25519, PKIX) that signs release manifests")
	f.StringVar(&o.ReleaseManifest, "release-manifest", "", "file of the release manifest, read anew every --admission-retry")
	f.DurationVar(&o.AdmissionRetry, "admission-retry", admission.DefaultRetry, "how often the release manifest is looked at")
	f.DurationVar(&o.PeerTimeout, "peer-timeout", peer.DefaultTimeout, "how long a peer may take to answer")
	f.DurationVar(&o.SessionIdle, "session-idle", session.DefaultIdle, "a session unused for this long ends")
	f.DurationVar(&o.SessionLifetime, "session-lifetime", session.DefaultLifetime, "a session ends after this long")
	f.DurationVar(&o.ScopedLifetime, "scoped-lifetime", session.DefaultScopedLifetime, "a scoped credential ends after this long, unless its login asks otherwise")
	f.StringVar(&o.RequireProof, "require-proof", string(session.DemandNone), "logins that must bind their session, to a key by a DPoP proof or to a client certificate: off, people (password and ldap) or all")
	f.StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil, "networks (CIDR) of proxies whose X-Forwarded-For says where a request comes from; default: none is believed")
	o.bindLimits(f)
	bindProviders(f, &o.Providers)
	f.StringVar(&o.MetricsListen, "metrics-listen", "", "address of /metrics over plain HTTP; default: off")
	bindTracing(f, &o.Tracing)
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
}

func (o *serveOptions) bindLimits(f *pflag.FlagSet) {
	def := server.DefaultLimits()
	f.IntVar(&o.MaxSessions, "max-sessions", def.MaxSessions, "sessions that may be live, of all replicas together; a quarter of them of one principal")
	f.IntVar(&o.MaxSessionsPerPrincipal, "max-sessions-per-principal", def.MaxSessionsPerPrincipal, "sessions that one principal may log in to")
	f.IntVar(&o.MaxDerivedSessions, "max-derived-sessions", def.MaxDerivedSessions, "sessions that may be made from one")
	f.IntVar(&o.MaxInFlight, "max-requests-per-session", def.MaxInFlight, "requests that one session may have under way")
	f.IntVar(&o.MaxRequests, "max-requests", def.MaxRequests, "requests that the process works on at once")
	f.IntVar(&o.MaxWaiting, "max-waiting", def.MaxWaiting, "long polls that the process holds open")
	f.IntVar(&o.MaxStreams, "max-streams", def.MaxStreams, "messages that the process reads while it works on them")
	f.IntVar(&o.MaxConnections, "max-connections", def.MaxConnections, "connections to the API that may be open")
	f.IntVar(&o.MaxConnectionsPerAddress, "max-connections-per-address", def.MaxConnectionsPerAddress, "connections that one address may have (IPv6: one network of 64 bits); a trusted proxy may have all")
	f.IntVar(&o.MaxStrangers, "max-strangers", def.MaxStrangers, "requests without a session that the process has under way")
	f.IntVar(&o.MaxStrangersPerAddress, "max-strangers-per-address", def.MaxStrangersPerAddress, "of them, those of one address (IPv6: one network of 64 bits)")
	f.Int64Var(&o.MaxSpoolBytes, "max-spool-bytes", def.MaxSpoolBytes, "bytes of messages that come before the name of their key and are put aside")
	f.Int64Var(&o.MaxSpoolBytesPerSession, "max-spool-bytes-per-session", def.MaxSpoolBytesPerSession, "of them, those of one session")
	f.IntVar(&o.MaxLogins, "max-logins", def.MaxLogins, "passwords that are hashed at once, 19 MiB each; default: half of the cores")
	f.IntVar(&o.MaxProofs, "max-proofs", def.MaxProofs, "used DPoP proofs that the process remembers")
}

// ServerDefaults returns the configuration of serve without any flag. It has no logger.
func ServerDefaults() server.Config {
	var o serveOptions
	o.bind(pflag.NewFlagSet("serve", pflag.ContinueOnError))
	o.identify()
	return o.Config
}

// identify sets the version of this program and its clocks.
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
		Short: "Serve the whole /api over HTTPS in front of an embedded key server",
		Long: "Serve the whole /api over HTTPS in front of a key server that runs in this process,\n" +
			"on an embedded database or on PostgreSQL. Each flag can also be given as an\n" +
			"environment variable: --data-dir as KEYSERVER_DATA_DIR.",
		Args:        program.NoArgs,
		Annotations: map[string]string{program.Serves: program.AsService},
		RunE: program.Runs(func(cmd *cobra.Command) error {
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
