{{/* Refuses combinations of values that the schema cannot exclude. */}}
{{- define "keyserver.refusals" -}}
{{- $embedded := eq .Values.form "embedded" -}}
{{- range $name := list "KEYSERVER_DATABASE_URL" "KEYSERVER_KEK" "KEYSERVER_KEK_PREVIOUS" -}}
{{- if hasKey $.Values.settings $name -}}
{{- fail (printf "settings.%s: secrets are not allowed in values; put the secret into a Secret, and name it in secrets, or in api.extraEnv with valueFrom" $name) -}}
{{- end -}}
{{- end -}}
{{- range $container := list "manager" "api" -}}
{{- range (get $.Values $container).extraEnv -}}
{{- if and (has .name (list "KEYSERVER_DATABASE_URL" "KEYSERVER_KEK" "KEYSERVER_KEK_PREVIOUS")) (hasKey . "value") -}}
{{- fail (printf "%s.extraEnv: secrets are not allowed in values; put %s into a Secret, and name it with valueFrom" $container .name) -}}
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
{{- fail (printf "release: the cluster already has the release %s in the namespace %s, and a cluster can have only one; upgrade that release, or uninstall it first" $name $namespace) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicies.create (has .Release.Namespace (list "default" "kube-system")) -}}
{{- fail (printf "namespace: the network policies would block all traffic in %s; set --namespace to a separate namespace, for example keyserver-system" .Release.Namespace) -}}
{{- end -}}
{{- if not $embedded -}}
{{- if .Values.volume.ephemeral -}}{{- fail (printf "volume.ephemeral: only the form embedded has a volume, but form is %s; omit it" .Values.form) -}}{{- end -}}
{{- if or .Values.replication.to .Values.replication.keep .Values.replication.recipient -}}
{{- fail (printf "replication: requires the form embedded, but form is %s; omit it" .Values.form) -}}
{{- end -}}
{{- else -}}
{{- range $name := list "manager" "api" -}}
{{- if (get $.Values $name).replicas -}}{{- fail (printf "%s.replicas: the form embedded has exactly one Pod; omit it, or set form to postgres" $name) -}}{{- end -}}
{{- end -}}
{{- if .Values.api.serviceAccountAnnotations -}}
{{- fail "api.serviceAccountAnnotations: in the form embedded, both containers use the service account of the manager; set manager.serviceAccountAnnotations instead" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.secrets.databaseCA.name (ne .Values.form "postgres") -}}
{{- fail (printf "secrets.databaseCA.name: only the form postgres uses it, but form is %s; omit it" .Values.form) -}}
{{- end -}}
{{- if and .Values.autoscaling.create .Values.api.replicas -}}
{{- fail "api.replicas: the autoscaler sets the number of replicas; set autoscaling.minReplicas and autoscaling.maxReplicas instead, or autoscaling.create to false" -}}
{{- end -}}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas: %d exceeds autoscaling.maxReplicas, which is %d; lower it" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- with .Values.backups -}}
{{- $any := or .every .to .recipient (not (kindIs "string" .keep)) -}}
{{- range $name := list "every" "to" "recipient" -}}
{{- if and $any (not (get $.Values.backups $name)) -}}{{- fail (printf "backups.%s: is missing; set every, to and recipient, or omit all of them" $name) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.replication -}}
{{- $any := or .to .recipient .keep -}}
{{- range $name := list "to" "recipient" -}}
{{- if and $any (not (get $.Values.replication $name)) -}}{{- fail (printf "replication.%s: is missing; set to and recipient, or omit both" $name) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.archive.retention (not .Values.archive.url) -}}
{{- fail "archive.url: is missing, but archive.retention deletes only archived rows; set archive.url, or omit archive.retention" -}}
{{- end -}}
{{- end -}}
