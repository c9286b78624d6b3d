{{/*
The templates start from the objects in manifests, which kustomize has built from config, and
change the fields that values set. An object is a map. Every define below changes its map in
place, and prints nothing unless its comment says so.
*/}}

{{/* Prints the documents of a file of manifests, for the namespace of the release. */}}
{{- define "keyserver.manifests" -}}
{{- $root := index . 0 -}}
{{- $root.Files.Get (printf "manifests/%s.yaml" (index . 1)) | replace "keyserver-system" $root.Release.Namespace -}}
{{- end -}}

{{/* Prints the settings of both containers: those of config, overwritten by those of the values. */}}
{{- define "keyserver.settings" -}}
{{- $settings := dict -}}
{{- range include "keyserver.manifests" (list . .Values.form) | splitList "\n---\n" -}}
{{- $object := fromYaml . -}}
{{- if and (eq $object.kind "ConfigMap") (hasPrefix "keyserver-settings-" $object.metadata.name) -}}
{{- $settings = $object.data -}}
{{- end -}}
{{- end -}}
{{- if not .Values.keyServer.create -}}{{- $_ := unset $settings "KEYSERVER_FIRST_KEYSERVER_CONFIGMAP" -}}{{- end -}}
{{- mergeOverwrite $settings .Values.settings | toYaml -}}
{{- end -}}

{{/* Prints the name of the ConfigMap of the settings, formed as kustomize forms it. The name
contains a hash of the content, so that a change replaces the Pods. */}}
{{- define "keyserver.settingsName" -}}
{{- $content := dict "kind" "ConfigMap" "name" "" "data" (include "keyserver.settings" . | fromYaml) | toJson -}}
{{- $sum := sha256sum $content | trunc 10 -}}
keyserver-settings-{{ $sum | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- end -}}

{{/* list OBJECT: marks the object so that Helm does not delete it. */}}
{{- define "keyserver.keep" -}}
{{- $metadata := (index . 0).metadata -}}
{{- $_ := set $metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($metadata.annotations | default dict)) -}}
{{- end -}}

{{/* list MAP NAME LIST: appends LIST to the list with the name NAME. */}}
{{- define "keyserver.append" -}}
{{- $map := index . 0 -}}{{- $name := index . 1 -}}{{- $more := index . 2 -}}
{{- if $more -}}
{{- $_ := set $map $name (concat (get $map $name | default list) $more) -}}
{{- end -}}
{{- end -}}

{{/* list MAP NAME ITEM: prepends ITEM to the list with the name NAME, in the order of kustomize. */}}
{{- define "keyserver.prepend" -}}
{{- $map := index . 0 -}}{{- $name := index . 1 -}}
{{- $_ := set $map $name (prepend (get $map $name | default list) (index . 2)) -}}
{{- end -}}

{{/* list CONTAINER VARIABLES: replaces variables with the same name, and appends the others. */}}
{{- define "keyserver.env" -}}
{{- $container := index . 0 -}}
{{- range $variable := index . 1 -}}
{{- $env := list -}}{{- $there := false -}}
{{- range $container.env -}}
{{- if eq .name $variable.name -}}{{- $there = true -}}{{- $env = append $env $variable -}}
{{- else -}}{{- $env = append $env . -}}{{- end -}}
{{- end -}}
{{- if not $there -}}{{- $env = append $env $variable -}}{{- end -}}
{{- $_ := set $container "env" $env -}}
{{- end -}}
{{- end -}}

{{/* Prints the image. */}}
{{- define "keyserver.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end -}}

{{/* list ROOT CONTAINER: applies the values of a container. */}}
{{- define "keyserver.container" -}}
{{- $root := index . 0 -}}{{- $container := index . 1 -}}
{{- $values := $root.Values -}}
{{- $own := get $values $container.name -}}
{{- $_ := set $container "image" (include "keyserver.image" $root) -}}
{{- with $values.image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- with $own.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- range $container.envFrom -}}{{- $_ := set .configMapRef "name" (include "keyserver.settingsName" $root) -}}{{- end -}}
{{- if eq $container.name "manager" -}}
{{- $audience := (include "keyserver.settings" $root | fromYaml).KEYSERVER_OIDC_AUDIENCE -}}
{{- $args := list -}}
{{- range $container.args -}}
{{- $args = append $args (ternary (printf "--token-file=%s=/run/keyserver/token/token" $audience) . (hasPrefix "--token-file=" .)) -}}
{{- end -}}
{{- $_ := set $container "args" $args -}}
{{- else -}}
{{- include "keyserver.serve" . -}}
{{- end -}}
{{- if $values.monitoring.create -}}
{{- $port := ternary 8082 8083 (eq $container.name "manager") -}}
{{- include "keyserver.prepend" (list $container "env" (dict "name" "KEYSERVER_METRICS_LISTEN" "value" (printf ":%d" $port))) -}}
{{- include "keyserver.prepend" (list $container "ports" (dict "name" (printf "%s-metrics" $container.name) "containerPort" $port)) -}}
{{- end -}}
{{- include "keyserver.append" (list $container "args" $own.extraArgs) -}}
{{- include "keyserver.env" (list $container $own.extraEnv) -}}
{{- include "keyserver.append" (list $container "volumeMounts" $own.extraVolumeMounts) -}}
{{- end -}}

{{/* list ROOT CONTAINER: applies the values that concern only the key server. */}}
{{- define "keyserver.serve" -}}
{{- $values := (index . 0).Values -}}{{- $container := index . 1 -}}
{{- $secrets := $values.secrets -}}
{{- range $container.env -}}
{{- if eq .name "KEYSERVER_KEK" -}}
{{- $_ := set .valueFrom "secretKeyRef" (dict "name" $secrets.kek.name "key" $secrets.kek.key) -}}
{{- else if eq .name "KEYSERVER_KEK_PREVIOUS" -}}
{{- $_ := set .valueFrom "secretKeyRef" (dict "name" $secrets.kek.name "key" $secrets.kek.previousKey "optional" true) -}}
{{- else if and (eq .name "KEYSERVER_DATABASE_URL") (eq $values.form "postgres") -}}
{{- $_ := set .valueFrom "secretKeyRef" (dict "name" $secrets.database.name "key" $secrets.database.key) -}}
{{- end -}}
{{- end -}}
{{- if $secrets.databaseCA.name -}}
{{- include "keyserver.append" (list $container "volumeMounts" (list (dict "name" "database-ca" "mountPath" "/run/keyserver/database" "readOnly" true))) -}}
{{- end -}}
{{- $told := dict
    "BACKUP_EVERY" $values.backups.every "BACKUP_TO" $values.backups.to "BACKUP_RECIPIENT" $values.backups.recipient
    "REPLICATE_TO" $values.replication.to "REPLICATE_KEEP" $values.replication.keep "REPLICATE_RECIPIENT" $values.replication.recipient
    "AUDIT_ARCHIVE" $values.archive.url "AUDIT_RETENTION" $values.archive.retention
    "AUDIT_SINK" (join "," $values.sinks) -}}
{{- if not (kindIs "string" $values.backups.keep) -}}{{- $_ := set $told "BACKUP_KEEP" (printf "%d" (int $values.backups.keep)) -}}{{- end -}}
{{- range $name, $value := $told -}}
{{- if $value -}}
{{- include "keyserver.env" (list $container (list (dict "name" (printf "KEYSERVER_%s" $name) "value" $value))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* list ROOT POD: applies the values that concern its volumes. */}}
{{- define "keyserver.volumes" -}}
{{- $root := index . 0 -}}{{- $pod := index . 1 -}}
{{- $values := $root.Values -}}
{{- range $pod.volumes -}}
{{- if eq .name "key-server-token" -}}
{{- $_ := set (index .projected.sources 0).serviceAccountToken "audience" (include "keyserver.settings" $root | fromYaml).KEYSERVER_OIDC_AUDIENCE -}}
{{- else if eq .name "tls" -}}
{{- $_ := set .secret "secretName" $values.secrets.tls.name -}}
{{- else if and (eq .name "data") (hasKey . "persistentVolumeClaim") -}}
{{- if $values.volume.ephemeral -}}
{{- $_ := unset . "persistentVolumeClaim" -}}{{- $_ := set . "emptyDir" dict -}}
{{- else -}}
{{- $_ := set .persistentVolumeClaim "claimName" $values.volume.claimName -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "keyserver.append" (list $pod "volumes" $values.pod.extraVolumes) -}}
{{- end -}}

{{/* list ROOT SECURITYCONTEXT: sets the user and the groups of a Pod. Helm omits null values.
With "helm upgrade --reuse-values", values of an older release have no such fields: then the
default applies. */}}
{{- define "keyserver.identity" -}}
{{- $chosen := (index . 0).Values.pod.securityContext -}}{{- $context := index . 1 -}}
{{- range $name := list "runAsUser" "runAsGroup" "fsGroup" -}}
{{- if not (kindIs "map" $chosen) -}}{{- $_ := set $context $name 65532 -}}
{{- else if kindIs "invalid" (dig $name nil $chosen) -}}{{- $_ := unset $context $name -}}
{{- else -}}{{- $_ := set $context $name (int64 (get $chosen $name)) -}}{{- end -}}
{{- end -}}
{{- if not (hasKey $context "fsGroup") -}}{{- $_ := unset $context "fsGroupChangePolicy" -}}{{- end -}}
{{- end -}}

{{/* list ROOT DEPLOYMENT: applies the values of a Deployment. */}}
{{- define "keyserver.deployment" -}}
{{- $root := index . 0 -}}{{- $deployment := index . 1 -}}
{{- $values := $root.Values -}}
{{- $template := $deployment.spec.template -}}{{- $pod := $template.spec -}}
{{- range $pod.containers -}}{{- include "keyserver.container" (list $root .) -}}{{- end -}}
{{- include "keyserver.volumes" (list $root $pod) -}}
{{- if eq $deployment.metadata.name "keyserver-api" -}}
{{- with $values.secrets.databaseCA -}}
{{- if .name -}}
{{- $secret := dict "secretName" .name "defaultMode" 288 "items" (list (dict "key" .key "path" "ca.crt")) -}}
{{- include "keyserver.append" (list $pod "volumes" (list (dict "name" "database-ca" "secret" $secret))) -}}
{{- end -}}
{{- end -}}
{{- if not $values.autoscaling.create -}}
{{- $_ := set $deployment.spec "replicas" ($values.api.replicas | default 2) -}}
{{- end -}}
{{- else if $values.manager.replicas -}}
{{- $_ := set $deployment.spec "replicas" $values.manager.replicas -}}
{{- end -}}
{{- with $values.image.pullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- include "keyserver.identity" (list $root $pod.securityContext) -}}
{{- with $values.pod -}}
{{- if .annotations -}}{{- $_ := set $template.metadata "annotations" (merge ($template.metadata.annotations | default dict) .annotations) -}}{{- end -}}
{{- if .labels -}}{{- $_ := set $template.metadata "labels" (merge $template.metadata.labels .labels) -}}{{- end -}}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
{{- with get $values.pod $name -}}{{- $_ := set $pod $name . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* list ROOT OBJECT: applies the values of an object of any kind. */}}
{{- define "keyserver.change" -}}
{{- $root := index . 0 -}}{{- $object := index . 1 -}}
{{- $values := $root.Values -}}{{- $kind := $object.kind -}}{{- $name := $object.metadata.name -}}
{{- if eq $kind "Deployment" -}}
{{- include "keyserver.deployment" . -}}
{{- else if and (eq $kind "ConfigMap") (hasPrefix "keyserver-settings-" $name) -}}
{{- $_ := set $object "data" (include "keyserver.settings" $root | fromYaml) -}}
{{- $_ := set $object.metadata "name" (include "keyserver.settingsName" $root) -}}
{{- else if and (eq $kind "ConfigMap") (eq $name "keyserver-first") -}}
{{- $_ := set $object "data" (dict "keyserver.yaml" (include "keyserver.keyServer" $root) "fieldManager" "helm") -}}
{{- else if eq $kind "ServiceAccount" -}}
{{- with get (ternary $values.api $values.manager (eq $name "keyserver-api")) "serviceAccountAnnotations" -}}
{{- $_ := set $object.metadata "annotations" . -}}
{{- end -}}
{{- else if and (eq $kind "Role") (eq $name "keyserver-manager-ca") -}}
{{- $_ := set (index $object.rules 0) "resourceNames" (list $values.secrets.tls.name) -}}
{{- else if eq $kind "HorizontalPodAutoscaler" -}}
{{- with $values.autoscaling -}}
{{- $_ := set $object.spec "minReplicas" .minReplicas -}}
{{- $_ := set $object.spec "maxReplicas" .maxReplicas -}}
{{- $_ := set (index $object.spec.metrics 0).resource.target "averageUtilization" .targetCPUUtilization -}}
{{- end -}}
{{- else if eq $kind "PodDisruptionBudget" -}}
{{- $_ := set $object.spec "maxUnavailable" $values.disruptionBudget.maxUnavailable -}}
{{- else if and (eq $kind "NetworkPolicy") (eq $name "keyserver-egress") -}}
{{- range $values.networkPolicies.egressPorts -}}
{{- include "keyserver.append" (list (index $object.spec.egress 0) "ports" (list (dict "protocol" "TCP" "port" .))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* list ROOT OBJECT: prints "left out" if the values exclude the object. */}}
{{- define "keyserver.leftOut" -}}
{{- $values := (index . 0).Values -}}{{- $object := index . 1 -}}
{{- $made := dict
    "NetworkPolicy" $values.networkPolicies.create
    "PodDisruptionBudget" $values.disruptionBudget.create
    "HorizontalPodAutoscaler" $values.autoscaling.create
    "PrometheusRule" $values.monitoring.alerts
    "keyserver-first" $values.keyServer.create
    "keyserver-manager-first-keyserver" $values.keyServer.create -}}
{{- if not (and (dig $object.kind true $made) (dig $object.metadata.name true $made)) -}}left out{{- end -}}
{{- end -}}

{{/* Prints the KeyServer, with the marks by which Helm takes it into the release. */}}
{{- define "keyserver.keyServer" -}}
{{- $file := ternary "keyserver-embedded" "keyserver-postgres" (eq .Values.form "embedded") -}}
{{- $object := include "keyserver.manifests" (list . $file) | fromYaml -}}
{{- $settings := include "keyserver.settings" . | fromYaml -}}
{{- $_ := set $object.spec "externalURL" $settings.KEYSERVER_EXTERNAL_URL -}}
{{- $_ := set $object.spec.credentials.administrator.serviceAccount "audience" $settings.KEYSERVER_OIDC_AUDIENCE -}}
{{- with $object.spec.caBundle.secretKeyRef }}{{ $_ := set . "name" $.Values.secrets.tls.name }}{{ end -}}
{{- $_ := set $object "spec" (mergeOverwrite $object.spec .Values.keyServer.spec) -}}
{{- $_ := set $object.metadata "labels" (dict "app.kubernetes.io/managed-by" "Helm") -}}
{{- $_ := set $object.metadata "annotations" (dict
    "meta.helm.sh/release-name" .Release.Name "meta.helm.sh/release-namespace" .Release.Namespace) -}}
{{- /* The manager sets a finalizer on the object, and may be deleted before the object. */ -}}
{{- include "keyserver.keep" (list $object) -}}
{{- toYaml $object -}}
{{- end -}}

{{/* list ROOT OBJECT: prints "outside" if an object of the cluster is not in the release. Helm cannot change such an
object. */}}
{{- define "keyserver.outside" -}}
{{- $release := (index . 0).Release -}}{{- $object := index . 1 -}}
{{- $of := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $object -}}
{{- $in := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $object -}}
{{- if or (ne $of $release.Name) (ne $in $release.Namespace) -}}outside{{- end -}}
{{- end -}}

{{/* Prints "exists" if the cluster has the kind KeyServer. */}}
{{- define "keyserver.kindExists" -}}
{{- if .Capabilities.APIVersions.Has "trust.keyserver.dev/v1beta1/KeyServer" -}}exists{{- end -}}
{{- end -}}

{{/* Prints the names of the KeyServers that are not in the release, unless "default" is in it. Then the release gets no
KeyServer. Without a cluster, "lookup" finds nothing. */}}
{{- define "keyserver.otherKeyServers" -}}
{{- $others := list -}}{{- $ours := false -}}
{{- if include "keyserver.kindExists" . -}}
{{- range dig "items" list (lookup "trust.keyserver.dev/v1beta1" "KeyServer" "" "") -}}
{{- if include "keyserver.outside" (list $ .) -}}{{- $others = append $others .metadata.name -}}
{{- else if eq .metadata.name "default" -}}{{- $ours = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $ours -}}{{- join ", " $others -}}{{- end -}}
{{- end -}}
