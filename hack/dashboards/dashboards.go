package main

// dashboard is one file of config/grafana.
type dashboard struct {
	uid, title, description string
	rows                    []row
}

type row struct {
	title  string
	panels []panel
}

// panel shows queries over time, or the last value large (stat).
type panel struct {
	title, description, unit string
	queries                  []query
	stat, stacked, signed    bool
	steps                    steps
}

type query struct{ expr, legend string }

// quantiles returns queries for quantiles of a histogram, grouped by
// labels in addition to le.
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
		uid: "keyserver-operator", title: "Key server: operator", description: "What is declared, whether it holds, and what the manager does for it.",
		rows: []row{
			{"Does it hold", []panel{
				{title: "Managers active", description: "Managers that hold the lease. Runbook: KeyServerManagerMissing.", unit: "short", stat: true, steps: allIsFine,
					queries: []query{{`sum(leader_election_master_status{name="manager.trust.keyserver.dev"}) or vector(0)`, "active"}}},
				{title: "Objects that are not Ready", description: "By kind and reason. Runbook: KeyServerObjectsNotReady.", unit: "short", stacked: true,
					queries: []query{{`sum by (kind, reason) (keyserver_objects{reason!~"Verified|Paused"}) > 0`, "{{kind}}: {{reason}}"}}},
				{title: "Objects", description: "All of them, by kind.", unit: "short", stacked: true,
					queries: []query{{"sum by (kind) (keyserver_objects)", "{{kind}}"}}},
				{title: "First certificate that ends", description: "Of those that objects declare, by kind. Runbook: KeyServerTrustExpires.", unit: "s", signed: true,
					queries: []query{{"min by (kind) (keyserver_object_not_after_seconds) - time()", "{{kind}}"}}},
				{title: "Outside changes", description: "Found, and repaired. Runbook: KeyServerDriftKeepsComingBack.", unit: "short",
					queries: []query{{"sum by (kind) (increase(keyserver_drift_found_total[1h]))", "{{kind}} found"}, {"sum by (kind) (increase(keyserver_drift_repaired_total[1h]))", "{{kind}} repaired"}}},
				{title: "Time to verified", description: "From being created, or unready, to verified. Runbook: KeyServerVerificationSlow.", unit: "s",
					queries: quantiles("keyserver_time_to_verified_seconds", "kind")},
			}},
			{"The manager at work", []panel{
				{title: "Calls", description: "To each key server, by code. Runbook: KeyServerCallsRefused.", unit: "reqps",
					queries: []query{{"sum by (keyserver, code) (rate(keyserver_api_requests_total[5m]))", "{{keyserver}}: {{code}}"}}},
				{title: "Passes", description: "Of reconcilers, by how they ended.", unit: "ops",
					queries: []query{{"sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))", "{{controller}}: {{result}}"}}},
				{title: "Queues", description: "Objects that wait for their pass.", unit: "short",
					queries: []query{{"sum by (name) (workqueue_depth)", "{{name}}"}}},
			}},
		},
	},
	{
		uid: "keyserver-server", title: "Key server: service", description: "What is asked of the key server, how fast it answers, and how near its bounds are.",
		rows: []row{
			{"Does it work", []panel{
				{title: "Parts that fail", description: "As GET /api/ready has them. Runbook: KeyServerPartFails.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"count(keyserver_ready == 0) or vector(0)", "parts"}}},
				{title: "Requests", description: "By code; OK is success. Runbook: KeyServerFailing.", unit: "reqps", stacked: true,
					queries: []query{{"sum by (code) (rate(keyserver_http_requests_total[5m]))", "{{code}}"}}},
				{title: "Time to answer", description: "From the header of a request to the end of its answer; long polls left out.", unit: "s",
					queries: []query{
						{`histogram_quantile(0.5, sum by (le) (rate(keyserver_http_request_duration_seconds_bucket{route!="/api/changes"}[5m])))`, "p50"},
						{`histogram_quantile(0.99, sum by (le) (rate(keyserver_http_request_duration_seconds_bucket{route!="/api/changes"}[5m])))`, "p99"},
					}},
				{title: "Busiest routes", description: "The ten that are asked most.", unit: "reqps",
					queries: []query{{"topk(10, sum by (method, route) (rate(keyserver_http_requests_total[5m])))", "{{method}} {{route}}"}}},
				{title: "Programs", description: "Which releases run.", unit: "short", stacked: true,
					queries: []query{{"sum by (version, commit) (keyserver_build_info)", "{{version}} {{commit}}"}}},
				{title: "Clock", description: "How far the machine is ahead of the process. Runbook: KeyServerClockStepped.", unit: "s", signed: true,
					queries: []query{{"keyserver_clock_away_seconds", "{{instance}}"}, {"increase(keyserver_clock_steps_total[1h])", "steps of {{instance}}"}}},
			}},
			{"Bounds", []panel{
				{title: "Connections", description: "Open, of --max-connections.", unit: "percentunit",
					queries: []query{{`keyserver_connections / on (instance) keyserver_limit{flag="max-connections"}`, "{{instance}}"}}},
				{title: "Requests at work", description: "Of --max-requests, --max-waiting and --max-streams.", unit: "percentunit", queries: []query{
					{`keyserver_http_requests_at_work / on (instance) keyserver_limit{flag="max-requests"}`, "at work, {{instance}}"},
					{`keyserver_http_waiting / on (instance) keyserver_limit{flag="max-waiting"}`, "long polls, {{instance}}"},
					{`keyserver_http_streams / on (instance) keyserver_limit{flag="max-streams"}`, "messages, {{instance}}"},
				}},
				{title: "Strangers and spool", description: "Requests without a session, of --max-strangers, and messages put aside, of --max-spool-bytes.", unit: "percentunit", queries: []query{
					{`keyserver_http_strangers / on (instance) keyserver_limit{flag="max-strangers"}`, "strangers, {{instance}}"},
					{`keyserver_http_spooled_bytes / on (instance) keyserver_limit{flag="max-spool-bytes"}`, "spool, {{instance}}"},
				}},
				{title: "Largest shares", description: "Usage of each ceiling by its largest principal or address, divided by its share. Runbook: KeyServerShareUsedUp.", unit: "percentunit",
					queries: []query{{"keyserver_ceiling_largest_share_ratio", "{{ceiling}}, {{instance}}"}}},
				{title: "No room", description: "Refusals and evictions by ceiling. Runbook: KeyServerCeilingReached.", unit: "ops",
					queries: []query{{"sum by (ceiling, bound) (rate(keyserver_ceiling_refusals_total[5m]))", "{{ceiling}}, {{bound}}"}}},
				{title: "Sessions", description: "That are alive, by how they were opened; all replicas count the same.", unit: "short", stacked: true,
					queries: []query{{"max by (kind) (keyserver_sessions)", "{{kind}}"}}},
				{title: "Proofs remembered", description: "Of --max-proofs.", unit: "percentunit",
					queries: []query{{`keyserver_proofs_remembered / on (instance) keyserver_limit{flag="max-proofs"}`, "{{instance}}"}}},
				{title: "Passwords", description: "Being hashed, and waiting for that.", unit: "short",
					queries: []query{{"keyserver_logins_hashed", "hashed, {{instance}}"}, {"keyserver_logins_waiting", "waiting, {{instance}}"}}},
			}},
			{"Database", []panel{
				{title: "Transactions", description: "How long writes take; rows of the audit trail have their own dashboard.", unit: "s",
					queries: quantiles("keyserver_database_transaction_duration_seconds", "outcome")},
				{title: "Connections in use", description: "By what for. Runbook: KeyServerDatabaseConnectionsShort.", unit: "percentunit",
					queries: []query{{"keyserver_database_connections_in_use / keyserver_database_connections_max", "{{use}}, {{instance}}"}}},
				{title: "Waiting for a connection", description: "How many do at any moment.", unit: "short",
					queries: []query{{"sum by (use) (rate(keyserver_database_connection_wait_seconds_total[5m]))", "{{use}}"}}},
				{title: "Room on the volume", description: "Runbook: KeyServerVolumeFillsUp.", unit: "percentunit",
					queries: []query{{"keyserver_volume_free_bytes / keyserver_volume_size_bytes", "free, {{instance}}"}}},
				{title: "Replica", description: "How far behind --replicate-to is. Runbook: KeyServerReplicationBehind.", unit: "s",
					queries: []query{{"time() - keyserver_replication_last_timestamp_seconds", "{{instance}}"}}},
				{title: "Age of the last backup", description: "Runbook: KeyServerBackupLate.", unit: "s",
					queries: []query{{"time() - max(keyserver_backup_last_success_timestamp_seconds)", "age"}, {"max(keyserver_backup_interval_seconds)", "--backup-every"}}},
			}},
			{"Peers", []panel{
				{title: "Calls to peers", description: "By peer and code.", unit: "reqps",
					queries: []query{{"sum by (peer, code) (rate(keyserver_peer_calls_total[5m]))", "{{peer}}: {{code}}"}}},
				{title: "Time of calls to peers", description: "Those without an answer included.", unit: "s",
					queries: quantiles("keyserver_peer_call_duration_seconds", "peer")},
				{title: "Calls of peers", description: "By peer and code.", unit: "reqps",
					queries: []query{{"sum by (peer, code) (rate(keyserver_peer_requests_total[5m]))", "{{peer}}: {{code}}"}}},
			}},
		},
	},
	{
		uid: "keyserver-audit", title: "Key server: audit trail", description: "Whether the trail is written, signed, delivered and archived.",
		rows: []row{
			{"Written", []panel{
				{title: "Rows", description: "By outcome.", unit: "wps", stacked: true,
					queries: []query{{"sum by (outcome) (rate(keyserver_audit_rows_total[5m]))", "{{outcome}}"}}},
				{title: "Time of a commit", description: "Which every operation waits for.", unit: "s", queries: quantiles("keyserver_audit_commit_duration_seconds", "")},
				{title: "Rows in a commit", description: "On average: more is better under load.", unit: "short",
					queries: []query{{"sum(rate(keyserver_audit_rows_total[5m])) / sum(rate(keyserver_audit_commit_duration_seconds_count[5m]))", "rows"}}},
				{title: "Queue", description: "Operations that wait, of those that may.", unit: "percentunit",
					queries: []query{{"keyserver_audit_queue_rows / keyserver_audit_queue_max_rows", "{{instance}}"}}},
				{title: "Failed commits", description: "Each refuses operations. Runbook: KeyServerPartFails.", unit: "short",
					queries: []query{{"increase(keyserver_audit_commit_failures_total[5m])", "{{instance}}"}}},
				{title: "Room on the volume", description: "Runbook: KeyServerVolumeFillsUp.", unit: "bytes",
					queries: []query{{"keyserver_volume_free_bytes", "free, {{instance}}"}}},
			}},
			{"Signed", []panel{
				{title: "The tree grows", description: "Runbook: KeyServerAuditTreeStalls.", unit: "short", stat: true, steps: allIsFine,
					queries: []query{{"min(keyserver_audit_tree_grows)", "grows"}}},
				{title: "Rows without a checkpoint", description: "A few, until the next one.", unit: "short",
					queries: []query{{"keyserver_audit_tree_lag_rows", "{{instance}}"}}},
				{title: "Logs in conflict", description: "Runbook: KeyServerLogInConflict.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_witness_conflicts_total) or vector(0)", "conflicts"}}},
			}},
			{"Delivered and archived", []panel{
				{title: "Sinks behind", description: "Age of the oldest row that is not acknowledged. Runbook: KeyServerAuditSinkBehind.", unit: "s",
					queries: []query{{"max by (sink) (keyserver_audit_sink_lag_seconds)", "{{sink}}"}}},
				{title: "Rows delivered", description: "And batches that failed.", unit: "wps", queries: []query{
					{"sum by (sink) (rate(keyserver_audit_sink_sent_total[5m]))", "{{sink}}"}, {"sum by (sink) (rate(keyserver_audit_sink_failures_total[5m]))", "{{sink}} failed"},
				}},
				{title: "Rows not archived", description: "Below 65,536 and what comes in ten seconds. Runbook: KeyServerAuditArchiveFails.", unit: "short",
					queries: []query{{"max(keyserver_audit_archive_lag_rows)", "rows"}}},
			}},
		},
	},
	{
		uid: "keyserver-security", title: "Key server: security", description: "Who comes in, who is refused, what was tampered with, and what ends.",
		rows: []row{
			{"At once", []panel{
				{title: "Tables tampered with", description: "Runbook: KeyServerRowsTampered.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"count(keyserver_store_tampered_total > 0) or vector(0)", "tables"}}},
				{title: "Went back", description: "The database lost what was acknowledged. Runbook: KeyServerDatabaseWentBack.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_database_went_back_total)", "times"}}},
				{title: "Without approvals", description: "Processes with --break-glass.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_break_glass)", "processes"}}},
			}},
			{"Who comes in", []panel{
				{title: "Logins", description: "By method and outcome.", unit: "reqps",
					queries: []query{{"sum by (method, outcome) (rate(keyserver_logins_total[5m]))", "{{method}}: {{outcome}}"}}},
				{title: "Proofs that were refused", description: "By code: a stolen session id at work, or a clock that is wrong.", unit: "reqps",
					queries: []query{{`sum by (outcome) (rate(keyserver_proofs_total{outcome!="OK"}[5m]))`, "{{outcome}}"}}},
				{title: "Operations that were refused", description: "Rows of the trail; GET /api/audit?outcome=refused has them.", unit: "wps",
					queries: []query{{`sum(rate(keyserver_audit_rows_total{outcome="refused"}[5m]))`, "refused"}}},
				{title: "Certificates that were refused", description: "At handshakes of the API.", unit: "reqps",
					queries: []query{{"sum by (reason) (rate(keyserver_tls_client_certificates_refused_total[5m]))", "{{reason}}"}}},
				{title: "Connections that were closed", description: "As they came, because too many were open.", unit: "cps",
					queries: []query{{"sum by (bound) (rate(keyserver_connections_closed_total[5m]))", "{{bound}}"}}},
				{title: "Approvals that wait", description: "For somebody to give or reject them.", unit: "short",
					queries: []query{{"max(keyserver_approvals_pending)", "requests"}}},
			}},
			{"Keys and certificates", []panel{
				{title: "Keys", description: "By state.", unit: "short", stacked: true, queries: []query{{"max by (state) (keyserver_keys)", "{{state}}"}}},
				{title: "Certificates that end", description: "Of principals, within 90 days.", unit: "short", stacked: true,
					queries: []query{{`max by (expires) (keyserver_certificates{expires!="later"})`, "{{expires}}"}}},
				{title: "Own certificates end in", description: "Runbook: KeyServerAuthorityEnds.", unit: "s", signed: true, queries: []query{
					{"min by (state) (keyserver_authority_not_after_seconds) - time()", "CA, {{state}}"}, {"min(keyserver_server_certificate_not_after_seconds) - time()", "certificate"},
					{"min(keyserver_tls_certificate_not_after_seconds) - time()", "API"},
				}},
				{title: "Under each data key", description: "What is under a retiring one is what a rotation has still to do.", unit: "short", stacked: true,
					queries: []query{{"max by (state) (keyserver_data_key_wrapped)", "{{state}}"}}},
				{title: "Rows that cannot be wrapped anew", description: "They do not agree with their MACs: run doctor.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"max(keyserver_rewrap_refused)", "rows"}}},
				{title: "Key beside its database", description: "Processes whose key-encryption key is in the directory of the database.", unit: "short", stat: true, steps: noneIsFine,
					queries: []query{{"sum(keyserver_kek_beside_database)", "processes"}}},
			}},
		},
	},
}
