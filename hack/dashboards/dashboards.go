package main

type dashboard struct {
	uid, title, description string
	rows                    []row
}

type row struct {
	title  string
	panels []panel
}

// panel shows queries over time or, if stat is set, only the last value in large digits.
type panel struct {
	title, description, unit string
	queries                  []query
	stat, stacked, signed    bool
	steps                    steps
}

type query struct{ expr, legend string }

// quantiles returns queries for quantiles of a histogram, grouped by le and the given labels.
func quantiles(histogram, by string) []query {
	labels, legend := "le", ""
	if by != "" {
		labels, legend = by+", le", "{{"+by+"}} "
	}
	var all []query
	for _, q := range []struct{ share, name string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		all = append(all, query{"histogram_quantile(" + q.share + ", sum by (" + labels + ") (rate(" + histogram + "_bucket[5m])))", legend + q.name})
	}
	return all
}

var (
	noneIsFine = steps{{1, "red"}}
	allIsFine  = steps{{-1, "red"}, {1, "green"}}
)

var dashboards = []dashboard{
	{
		uid: "keyserver-operator", title: "Key server: operator", description: "Declared objects, their state on the key server, and the work of the manager.",
		rows: []row{
			{"Declared objects", []panel{
				{title: "Managers active", description: "Managers that hold the lease. Runbook: KeyServerManagerMissing.", unit: "short", stat: true, steps: allIsFine,
					queries: []query{{`sum(leader_election_master_status{name="manager.trust.keyserver.dev"}) or vector(0)`, "active"}}},
				{title: "Objects not Ready", description: "By kind and reason. Runbook: KeyServerObjectsNotReady.", unit: "short", stacked: true,
					queries: []query{{`sum by (kind, reason) (keyserver_objects{reason!~"Verified|Paused"}) > 0`, "{{kind}}: {{reason}}"}}},
				{title: "Objects", description: "All objects, by kind.", unit: "short", stacked: true,
					queries: []query{{"sum by (kind) (keyserver_objects)", "{{kind}}"}}},
				{title: "Earliest certificate expiry", description: "Time until the first declared certificate of each kind expires. Runbook: KeyServerTrustExpires.", unit: "s", signed: true,
					queries: []query{{"min by (kind) (keyserver_object_not_after_seconds) - time()", "{{kind}}"}}},
				{title: "Outside changes", description: "Changes by other clients, found and repaired in an hour. Runbook: KeyServerDriftKeepsComingBack.", unit: "short",
					queries: []query{{"sum by (kind) (increase(keyserver_drift_found_total[1h]))", "{{kind}} found"}, {"sum by (kind) (increase(keyserver_drift_repaired_total[1h]))", "{{kind}} repaired"}}},
				{title: "Time to verified", description: "From the time an object is created or becomes not ready, until it is verified. Runbook: KeyServerVerificationSlow.", unit: "s",
					queries: quantiles("keyserver_time_to_verified_seconds", "kind")},
			}},
			{"Manager", []panel{
				{title: "Calls", description: "Calls of the manager, by key server and code. Runbook: KeyServerCallsRefused.", unit: "reqps",
					queries: []query{{"sum by (keyserver, code) (rate(keyserver_api_requests_total[5m]))", "{{keyserver}}: {{code}}"}}},
				{title: "Reconciliations", description: "By controller and result.", unit: "ops",
					queries: []query{{"sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))", "{{controller}}: {{result}}"}}},
				{title: "Queues", description: "Objects that wait for reconciliation.", unit: "short",
					queries: []query{{"sum by (name) (workqueue_depth)", "{{name}}"}}},
			}},
		},
	},
	{
		uid: "keyserver-server", title: "Key server: service", description: "Requests to the key server, its response times, and its usage of limits.",
		rows: []row{
			{"Health", []panel{
				{title: "Failed parts", description: "Failed parts of GET /api/ready. Runbook: KeyServerPartFails.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"count(keyserver_ready == 0) or vector(0)", "parts"}}},
				{title: "Requests", description: "By code; OK is success. Runbook: KeyServerFailing.", unit: "reqps", stacked: true,
					queries: []query{{"sum by (code) (rate(keyserver_http_requests_total[5m]))", "{{code}}"}}},
				{title: "Response time", description: "From the header of a request to the end of its response. Long polls are excluded.", unit: "s",
					queries: []query{
						{`histogram_quantile(0.5, sum by (le) (rate(keyserver_http_request_duration_seconds_bucket{route!="/api/changes"}[5m])))`, "p50"},
						{`histogram_quantile(0.99, sum by (le) (rate(keyserver_http_request_duration_seconds_bucket{route!="/api/changes"}[5m])))`, "p99"},
					}},
				{title: "Busiest routes", description: "The ten routes with the most requests.", unit: "reqps",
					queries: []query{{"topk(10, sum by (method, route) (rate(keyserver_http_requests_total[5m])))", "{{method}} {{route}}"}}},
				{title: "Programs", description: "Running releases.", unit: "short", stacked: true,
					queries: []query{{"sum by (version, commit) (keyserver_build_info)", "{{version}} {{commit}}"}}},
				{title: "Clock", description: "Time by which the clock of the machine is ahead of the time of the process. Runbook: KeyServerClockStepped.", unit: "s", signed: true,
					queries: []query{{"keyserver_clock_away_seconds", "{{instance}}"}, {"increase(keyserver_clock_steps_total[1h])", "steps of {{instance}}"}}},
			}},
			{"Limits", []panel{
				{title: "Connections", description: "Open connections, divided by --max-connections.", unit: "percentunit",
					queries: []query{{`keyserver_connections / on (instance) keyserver_limit{flag="max-connections"}`, "{{instance}}"}}},
				{title: "Requests in progress", description: "Divided by --max-requests, --max-waiting and --max-streams.", unit: "percentunit", queries: []query{
					{`keyserver_http_requests_at_work / on (instance) keyserver_limit{flag="max-requests"}`, "requests, {{instance}}"},
					{`keyserver_http_waiting / on (instance) keyserver_limit{flag="max-waiting"}`, "long polls, {{instance}}"},
					{`keyserver_http_streams / on (instance) keyserver_limit{flag="max-streams"}`, "messages, {{instance}}"},
				}},
				{title: "Requests without a session, and spool", description: "Requests without a session, divided by --max-strangers, and spooled messages, divided by --max-spool-bytes.", unit: "percentunit", queries: []query{
					{`keyserver_http_strangers / on (instance) keyserver_limit{flag="max-strangers"}`, "without a session, {{instance}}"},
					{`keyserver_http_spooled_bytes / on (instance) keyserver_limit{flag="max-spool-bytes"}`, "spool, {{instance}}"},
				}},
				{title: "Largest shares", description: "Usage of each ceiling by its largest principal or address, divided by its share. Runbook: KeyServerShareUsedUp.", unit: "percentunit",
					queries: []query{{"keyserver_ceiling_largest_share_ratio", "{{ceiling}}, {{instance}}"}}},
				{title: "Refusals at a ceiling", description: "Refusals and evictions by ceiling. Runbook: KeyServerCeilingReached.", unit: "ops",
					queries: []query{{"sum by (ceiling, bound) (rate(keyserver_ceiling_refusals_total[5m]))", "{{ceiling}}, {{bound}}"}}},
				{title: "Sessions", description: "Live sessions, by kind. All replicas report the same number.", unit: "short", stacked: true,
					queries: []query{{"max by (kind) (keyserver_sessions)", "{{kind}}"}}},
				{title: "DPoP replay cache", description: "Stored proofs, divided by --max-proofs.", unit: "percentunit",
					queries: []query{{`keyserver_proofs_remembered / on (instance) keyserver_limit{flag="max-proofs"}`, "{{instance}}"}}},
				{title: "Password hashing", description: "Logins whose password is being hashed, and logins that wait for it.", unit: "short",
					queries: []query{{"keyserver_logins_hashed", "hashed, {{instance}}"}, {"keyserver_logins_waiting", "waiting, {{instance}}"}}},
			}},
			{"Database", []panel{
				{title: "Transactions", description: "Duration of write transactions. The dashboard of the audit log shows its own commits.", unit: "s",
					queries: quantiles("keyserver_database_transaction_duration_seconds", "outcome")},
				{title: "Connections in use", description: "Divided by the maximum, by use. Runbook: KeyServerDatabaseConnectionsShort.", unit: "percentunit",
					queries: []query{{"keyserver_database_connections_in_use / keyserver_database_connections_max", "{{use}}, {{instance}}"}}},
				{title: "Waiting for a connection", description: "Average number of waiting requests, by use.", unit: "short",
					queries: []query{{"sum by (use) (rate(keyserver_database_connection_wait_seconds_total[5m]))", "{{use}}"}}},
				{title: "Free space on the volume", description: "Divided by the size of the volume. Runbook: KeyServerVolumeFillsUp.", unit: "percentunit",
					queries: []query{{"keyserver_volume_free_bytes / keyserver_volume_size_bytes", "free, {{instance}}"}}},
				{title: "Replication lag", description: "Time by which the copy in --replicate-to is behind. Runbook: KeyServerReplicationBehind.", unit: "s",
					queries: []query{{"time() - keyserver_replication_last_timestamp_seconds", "{{instance}}"}}},
				{title: "Age of the last backup", description: "Compared with the interval of --backup-every. Runbook: KeyServerBackupLate.", unit: "s",
					queries: []query{{"time() - max(keyserver_backup_last_success_timestamp_seconds)", "age"}, {"max(keyserver_backup_interval_seconds)", "--backup-every"}}},
			}},
			{"Peers", []panel{
				{title: "Calls to peers", description: "By peer and code.", unit: "reqps",
					queries: []query{{"sum by (peer, code) (rate(keyserver_peer_calls_total[5m]))", "{{peer}}: {{code}}"}}},
				{title: "Duration of calls to peers", description: "Includes calls without a response.", unit: "s",
					queries: quantiles("keyserver_peer_call_duration_seconds", "peer")},
				{title: "Calls from peers", description: "By peer and code.", unit: "reqps",
					queries: []query{{"sum by (peer, code) (rate(keyserver_peer_requests_total[5m]))", "{{peer}}: {{code}}"}}},
			}},
		},
	},
	{
		uid: "keyserver-audit", title: "Key server: audit log", description: "Writing, signing, delivery and archiving of the audit log.",
		rows: []row{
			{"Written", []panel{
				{title: "Rows", description: "By outcome.", unit: "wps", stacked: true,
					queries: []query{{"sum by (outcome) (rate(keyserver_audit_rows_total[5m]))", "{{outcome}}"}}},
				{title: "Commit duration", description: "Every operation waits for the commit of its row.", unit: "s", queries: quantiles("keyserver_audit_commit_duration_seconds", "")},
				{title: "Rows per commit", description: "Average. Higher is better under load.", unit: "short",
					queries: []query{{"sum(rate(keyserver_audit_rows_total[5m])) / sum(rate(keyserver_audit_commit_duration_seconds_count[5m]))", "rows"}}},
				{title: "Queue", description: "Waiting operations, divided by the maximum.", unit: "percentunit",
					queries: []query{{"keyserver_audit_queue_rows / keyserver_audit_queue_max_rows", "{{instance}}"}}},
				{title: "Failed commits", description: "Each failed commit refuses its operations. Runbook: KeyServerPartFails.", unit: "short",
					queries: []query{{"increase(keyserver_audit_commit_failures_total[5m])", "{{instance}}"}}},
				{title: "Free space on the volume", description: "Free bytes. Runbook: KeyServerVolumeFillsUp.", unit: "bytes",
					queries: []query{{"keyserver_volume_free_bytes", "free, {{instance}}"}}},
			}},
			{"Signed", []panel{
				{title: "Audit tree grows", description: "1: every replica extends the tree. 0: new rows get no receipts. Runbook: KeyServerAuditTreeStalls.", unit: "short", stat: true, steps: allIsFine,
					queries: []query{{"min(keyserver_audit_tree_grows)", "grows"}}},
				{title: "Rows without a checkpoint", description: "Rows since the last checkpoint. A small number is normal.", unit: "short",
					queries: []query{{"keyserver_audit_tree_lag_rows", "{{instance}}"}}},
				{title: "Logs in conflict", description: "Checkpoints of witnessed logs that do not continue the cosigned ones. Runbook: KeyServerLogInConflict.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_witness_conflicts_total) or vector(0)", "conflicts"}}},
			}},
			{"Delivered and archived", []panel{
				{title: "Sink lag", description: "Age of the oldest unacknowledged row. Runbook: KeyServerAuditSinkBehind.", unit: "s",
					queries: []query{{"max by (sink) (keyserver_audit_sink_lag_seconds)", "{{sink}}"}}},
				{title: "Rows delivered", description: "Delivered rows, and failed batches.", unit: "wps", queries: []query{
					{"sum by (sink) (rate(keyserver_audit_sink_sent_total[5m]))", "{{sink}}"}, {"sum by (sink) (rate(keyserver_audit_sink_failures_total[5m]))", "{{sink}} failed"},
				}},
				{title: "Rows not archived", description: "Normal: at most 65,536 rows plus the rows of ten seconds. Runbook: KeyServerAuditArchiveFails.", unit: "short",
					queries: []query{{"max(keyserver_audit_archive_lag_rows)", "rows"}}},
			}},
		},
	},
	{
		uid: "keyserver-security", title: "Key server: security", description: "Logins, refusals, tampered tables, and expiring certificates.",
		rows: []row{
			{"Act immediately", []panel{
				{title: "Tampered tables", description: "Tables with rows that no key server wrote. Runbook: KeyServerRowsTampered.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"count(keyserver_store_tampered_total > 0) or vector(0)", "tables"}}},
				{title: "Database went back", description: "How often the database had lost acknowledged changes. Runbook: KeyServerDatabaseWentBack.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_database_went_back_total)", "times"}}},
				{title: "Without approvals", description: "Processes with --break-glass, which do not require approvals.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_break_glass)", "processes"}}},
			}},
			{"Access", []panel{
				{title: "Logins", description: "By method and outcome.", unit: "reqps",
					queries: []query{{"sum by (method, outcome) (rate(keyserver_logins_total[5m]))", "{{method}}: {{outcome}}"}}},
				{title: "Refused proofs", description: "DPoP proofs, by code. Causes: use of a stolen session id, or a wrong clock.", unit: "reqps",
					queries: []query{{`sum by (outcome) (rate(keyserver_proofs_total{outcome!="OK"}[5m]))`, "{{outcome}}"}}},
				{title: "Refused operations", description: "Rows of the audit log. GET /api/audit?outcome=refused lists them.", unit: "wps",
					queries: []query{{`sum(rate(keyserver_audit_rows_total{outcome="refused"}[5m]))`, "refused"}}},
				{title: "Refused certificates", description: "At TLS handshakes of the API, by reason.", unit: "reqps",
					queries: []query{{"sum by (reason) (rate(keyserver_tls_client_certificates_refused_total[5m]))", "{{reason}}"}}},
				{title: "Closed connections", description: "Connections that the server closed, by reason.", unit: "cps",
					queries: []query{{"sum by (bound) (rate(keyserver_connections_closed_total[5m]))", "{{bound}}"}}},
				{title: "Pending approvals", description: "Requests that wait for a decision.", unit: "short",
					queries: []query{{"max(keyserver_approvals_pending)", "requests"}}},
			}},
			{"Keys and certificates", []panel{
				{title: "Keys", description: "By state.", unit: "short", stacked: true, queries: []query{{"max by (state) (keyserver_keys)", "{{state}}"}}},
				{title: "Expiring certificates", description: "Certificates of principals and peers that are expired, or expire within 90 days.", unit: "short", stacked: true,
					queries: []query{{`max by (expires) (keyserver_certificates{expires!="later"})`, "{{expires}}"}}},
				{title: "Expiry of server certificates", description: "Time until the internal CAs and the certificates of the server expire. Runbook: KeyServerAuthorityEnds.", unit: "s", signed: true, queries: []query{
					{"min by (state) (keyserver_authority_not_after_seconds) - time()", "CA, {{state}}"}, {"min(keyserver_server_certificate_not_after_seconds) - time()", "certificate"},
					{"min(keyserver_tls_certificate_not_after_seconds) - time()", "API"},
				}},
				{title: "Encrypted objects by data key state", description: "A rotation still has to rewrap the objects under a retiring data key.", unit: "short", stacked: true,
					queries: []query{{"max by (state) (keyserver_data_key_wrapped)", "{{state}}"}}},
				{title: "Rows that cannot be rewrapped", description: "Their MACs do not match. Run doctor.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"max(keyserver_rewrap_refused)", "rows"}}},
				{title: "Key next to its database", description: "Processes whose key-encryption key is in the directory of the database.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_kek_beside_database)", "processes"}}},
			}},
		},
	},
}
