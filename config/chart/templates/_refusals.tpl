{{/* Refuses combinations of values that the schema cannot exclude. */}}
{{- define "keyserver.refusals" -}}
{{- $embedded := eq .Values.form "embedded" -}}
{{- range $name := list "KEYSERVER_DATABASE_URL" "KEYSERVER_KEK" "KEYSERVER_KEK_PREVIOUS" -}}
{{- if hasKey $.Values.settings $name -}}
{{- fail (printf "settings.%s: a secret is no value; put it into a Secret, and name that in secrets, or in api.extraEnv with valueFrom" $name) -}}
{{- end -}}
{{- end -}}
{{- range $container := list "manager" "api" -}}
{{- range (get $.Values $container).extraEnv -}}
{{- if and (has .name (list "KEYSERVER_DATABASE_URL" "KEYSERVER_KEK" "KEYSERVER_KEK_PREVIOUS")) (hasKey . "value") -}}
{{- fail (printf "%s.extraEnv: a secret is no value; put %s into a Secret, and name that with valueFrom" $container .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* A cluster has one installation: its manager serves the objects of every namespace. The
error of Helm itself would only name a ClusterRole that cannot be imported. Without a cluster,
"lookup" finds nothing. */ -}}
{{- with lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "keyserver-manager" -}}
{{- $name := dig "metadata" "annotations" "meta.helm.sh/release-name" "" . -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" . -}}
{{- if and $name (or (ne $name $.Release.Name) (ne $namespace $.Release.Namespace)) -}}
{{- fail (printf "the cluster has the release %s in the namespace %s already, and one installation serves every namespace: upgrade that one, or uninstall it first" $name $namespace) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicies.create (has .Release.Namespace (list "default" "kube-system")) -}}
{{- fail (printf "the namespace is %s, and the network policies close all of it: give --namespace keyserver-system, or another of its own" .Release.Namespace) -}}
{{- end -}}
{{- with .Values.volume -}}
{{- if and .create .ephemeral -}}{{- fail "volume.create and volume.ephemeral exclude each other: leave one of them out" -}}{{- end -}}
{{- end -}}
{{- if not $embedded -}}
{{- range $name := list "create" "ephemeral" -}}
{{- if get $.Values.volume $name -}}{{- fail (printf "volume.%s: only the form embedded has a volume, and this one is %s; leave it out" $name $.Values.form) -}}{{- end -}}
{{- end -}}
{{- if or .Values.replication.to .Values.replication.keep .Values.replication.recipient -}}
{{- fail (printf "replication: only the embedded database is replicated, and the form is %s; leave it out" .Values.form) -}}
{{- end -}}
{{- else -}}
{{- range $name := list "manager" "api" -}}
{{- if (get $.Values $name).replicas -}}{{- fail (printf "%s.replicas: the form embedded has one Pod; leave it out, or give form postgres" $name) -}}{{- end -}}
{{- end -}}
{{- if .Values.api.serviceAccountAnnotations -}}
{{- fail "api.serviceAccountAnnotations: in the form embedded both containers have the service account of the manager; give manager.serviceAccountAnnotations" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.secrets.databaseCA.name (ne .Values.form "postgres") -}}
{{- fail (printf "secrets.databaseCA.name: only the form postgres takes a CA of its database, and this one is %s; leave it out" .Values.form) -}}
{{- end -}}
{{- if and .Values.autoscaling.create .Values.api.replicas -}}
{{- fail "api.replicas: the autoscaler says how many there are; give autoscaling.minReplicas and autoscaling.maxReplicas, or autoscaling.create false" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d, more than autoscaling.maxReplicas, which is %d; lower it" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- with .Values.backups -}}
{{- $any := or .every .to .recipient (not (kindIs "string" .keep)) -}}
{{- range $name := list "every" "to" "recipient" -}}
{{- if and $any (not (get $.Values.backups $name)) -}}{{- fail (printf "backups.%s is missing: a backup needs every, to and recipient" $name) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.replication -}}
{{- $any := or .to .recipient .keep -}}
{{- range $name := list "to" "recipient" -}}
{{- if and $any (not (get $.Values.replication $name)) -}}{{- fail (printf "replication.%s is missing: a replica needs to and recipient" $name) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.archive.retention (not .Values.archive.url) -}}
{{- fail "archive.url is missing: archive.retention removes what is in an archive" -}}
{{- end -}}
{{- end -}}
