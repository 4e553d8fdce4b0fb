{{/* bundled, strimzi or external. */}}
{{- define "sluicegate.kafkaMode" -}}
{{ ternary .Values.kafka.mode "external" .Values.kafka.enabled }}
{{- end -}}

{{- define "sluicegate.check" -}}
{{- if and (not .Values.kafka.enabled) (eq .Values.kafka.mode "strimzi") -}}
{{- fail "sluicegate: kafka.mode is strimzi but kafka.enabled is false: nothing would be created for Strimzi. Remove kafka.enabled, or set kafka.mode to external." -}}
{{- end -}}
{{- with .Values.operator -}}
{{- $watched := list -}}{{- range .watch.namespaces -}}{{- $watched = append $watched (tpl . $) -}}{{- end -}}
{{- $refused := and (has $.Release.Namespace $watched) (not (dig "watch" "ownNamespace" false .)) -}}
{{- if and .enabled .namespace.create (has (tpl .namespace.name $) (list "" $.Release.Namespace)) (not $refused) -}}
{{- fail "sluicegate: operator.namespace.create is true, but the operator's namespace is that of the release, which exists. Set operator.namespace.create to false." -}}
{{- end -}}
{{- end -}}
{{- $mode := include "sluicegate.kafkaMode" . -}}
{{- if and (ne $mode "external") .Values.external.kafka.bootstrapServers -}}
{{- fail (printf "sluicegate: external.kafka.bootstrapServers is set but kafka.mode is %s: only one can be used. Set kafka.mode to external to use your own, or remove the value." $mode) -}}
{{- end -}}
{{- if and (eq $mode "external") (not .Values.external.kafka.bootstrapServers) -}}
{{- fail "sluicegate: Kafka is external (kafka.mode, kafka.enabled) and external.kafka.bootstrapServers is empty: jobs would have no Kafka. Set its address, or kafka.mode to strimzi or bundled." -}}
{{- end -}}
{{- $on := dict "mysql" .Values.mysql.enabled "object-store" (index .Values "object-store").enabled "collector" .Values.collector.enabled -}}
{{- with .Values.external -}}
{{- $store := or .objectStore.endpoint .objectStore.region .objectStore.existingSecret -}}
{{- $given := dict "mysql" .mysql.existingSecret "object-store" $store "collector" .collector.endpoint -}}
{{- $where := dict "mysql" "external.mysql.existingSecret" "object-store" "external.objectStore" "collector" "external.collector.endpoint" -}}
{{- range $name, $enabled := $on -}}
{{- if and $enabled (get $given $name) -}}
{{- fail (printf "sluicegate: %s is set but %s.enabled is true: only one can be used. Set %s.enabled to false to use your own, or remove the value." (get $where $name) $name $name) -}}
{{- end -}}
{{- end -}}
{{- if not (or (get $on "mysql") .mysql.existingSecret) -}}
{{- fail "sluicegate: mysql.enabled is false and external.mysql.existingSecret is empty: jobs would have no MySQL. Name a Secret with its URL, or enable it." -}}
{{- end -}}
{{- if and $.Values.checkpointVolume.enabled (not (or (get $on "object-store") .objectStore.endpoint .objectStore.region)) -}}
{{- fail "sluicegate: object-store.enabled is false and external.objectStore has neither endpoint nor region: checkpoints would have no store. Set one of them, or set checkpointVolume.enabled to false and create your own volume." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.checkpointVolume.enabled (index .Values "object-store").enabled (not (include "sluicegate.storeSecret" .)) -}}
{{- fail (printf "sluicegate: no user of the object store has bucket %s and prefix %q of the CheckpointVolume: jobs would have no keys. Add {name: checkpoints, bucket: %s, prefix: %q} to object-store.users." .Values.checkpointVolume.bucket .Values.checkpointVolume.prefix .Values.checkpointVolume.bucket .Values.checkpointVolume.prefix) -}}
{{- end -}}
{{- if and .Values.checkpointVolume.enabled .Values.operator.enabled (not (include "sluicegate.storeSecret" .)) -}}
{{- $place := printf "%s=s3://%s" .Release.Namespace .Values.checkpointVolume.bucket -}}
{{- $listed := false -}}
{{- range .Values.operator.ambientIdentity -}}{{- if hasPrefix $place (tpl . $) -}}{{- $listed = true -}}{{- end -}}{{- end -}}
{{- if not $listed -}}
{{- fail (printf "sluicegate: the CheckpointVolume has no Secret, and operator.ambientIdentity does not let it use the operator's identity: no job could start. Set external.objectStore.existingSecret, or operator.ambientIdentity to [\"%s/PREFIX\"]." $place) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.checkpointVolume.reclaimPolicy "Delete") (not .Values.checkpointVolume.prefix) -}}
{{- fail "sluicegate: checkpointVolume.reclaimPolicy is Delete but prefix is empty: a whole bucket is never emptied. Set checkpointVolume.prefix." -}}
{{- end -}}
{{- end -}}

{{- define "sluicegate.kafka" -}}
{{- $mode := include "sluicegate.kafkaMode" . -}}
{{- if eq $mode "external" -}}
{{ .Values.external.kafka.bootstrapServers }}
{{- else -}}
{{ include "common.fullname" .Subcharts.kafka }}{{ ternary "-kafka-bootstrap" "" (eq $mode "strimzi") }}.{{ .Release.Namespace }}.svc:{{ ternary 9093 9092 (eq $mode "strimzi") }}
{{- end -}}
{{- end -}}

{{/* The Secret with kafka.properties that the chart kafka makes, empty if clients need none. */}}
{{- define "sluicegate.kafkaClientSecret" -}}
{{- if eq (include "sluicegate.kafkaMode" .) "bundled" -}}
{{- with .Subcharts.kafka -}}
{{- if or .Values.scram.enabled .Values.tls.enabled }}{{ include "common.fullname" . }}-client{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Empty: Amazon S3. */}}
{{- define "sluicegate.storeEndpoint" -}}
{{- if (index .Values "object-store").enabled -}}
{{- $store := index .Subcharts "object-store" -}}
{{ include "object-store.scheme" $store }}://{{ include "common.fullname" $store }}.{{ .Release.Namespace }}.svc:7070
{{- else -}}
{{ .Values.external.objectStore.endpoint }}
{{- end -}}
{{- end -}}

{{/* The Secret of the CheckpointVolume: of the store's user with its bucket and prefix, never root's. */}}
{{- define "sluicegate.storeSecret" -}}
{{- if (index .Values "object-store").enabled -}}
{{- $store := index .Subcharts "object-store" -}}
{{- range $store.Values.users -}}
{{- if and (not .readOnly) (eq .bucket $.Values.checkpointVolume.bucket) (eq (.prefix | default "") $.Values.checkpointVolume.prefix) -}}
{{ include "object-store.userSecret" (dict "top" $store "user" .) }}
{{- end -}}
{{- end -}}
{{- else -}}
{{ .Values.external.objectStore.existingSecret }}
{{- end -}}
{{- end -}}

{{/* The Secret with the CA of the store; empty: a public CA, or no TLS. */}}
{{- define "sluicegate.storeAuthority" -}}
{{- if not (index .Values "object-store").enabled -}}
{{ .Values.external.objectStore.authoritySecret }}
{{- else if (index .Values "object-store").tls.enabled -}}
{{ include "common.tlsSecretName" (index .Subcharts "object-store") }}
{{- end -}}
{{- end -}}

{{- define "sluicegate.mysqlSecret" -}}
{{- if .Values.mysql.enabled -}}
{{ include "mysql.secretName" .Subcharts.mysql }}
{{- else -}}
{{ .Values.external.mysql.existingSecret }}
{{- end -}}
{{- end -}}

{{- define "sluicegate.collector" -}}
{{- if .Values.collector.enabled -}}
http://{{ include "common.fullname" .Subcharts.collector }}.{{ .Release.Namespace }}.svc:4318
{{- else -}}
{{ .Values.external.collector.endpoint }}
{{- end -}}
{{- end -}}

{{/* The CheckpointVolume, as JSON. */}}
{{- define "sluicegate.volume" -}}
{{- $values := .Values.checkpointVolume -}}
{{- $spec := dict "bucket" $values.bucket "reclaimPolicy" $values.reclaimPolicy "quotaBytes" (int64 $values.quotaBytes) -}}
{{- $_ := set $spec "retention" (dict "savepoints" (int64 $values.retention.savepoints) "epochs" (int64 $values.retention.epochs)) -}}
{{- with include "sluicegate.storeEndpoint" . }}{{ $_ := set $spec "endpoint" . }}{{ end -}}
{{- with include "sluicegate.storeSecret" . }}{{ $_ := set $spec "credentialsSecret" . }}{{ end -}}
{{- with include "sluicegate.storeAuthority" . }}{{ $_ := set $spec "authoritySecret" . }}{{ end -}}
{{- with $values.prefix }}{{ $_ := set $spec "prefix" . }}{{ end -}}
{{- $region := ternary (index .Values "object-store").region .Values.external.objectStore.region (index .Values "object-store").enabled -}}
{{- with $region }}{{ $_ := set $spec "region" . }}{{ end -}}
{{- $meta := merge (dict "name" $values.name "labels" (include "common.labels" . | fromYaml)) (include "common.annotations" . | fromYaml) -}}
{{- dict "apiVersion" "sluicegate.dev/v1alpha1" "kind" "CheckpointVolume" "metadata" $meta "spec" $spec | toJson -}}
{{- end -}}

{{/* A Job that runs files/volume.py. Takes (dict "top" ROOT "verb" make|remove "hook" TEXT). */}}
{{- define "sluicegate.volumeJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .top.Release.Name }}-{{ .verb }}-volume
  namespace: {{ .top.Release.Namespace }}
  labels: {{- include "common.labels" .top | nindent 4 }}
    app.kubernetes.io/component: volume
  annotations:
    {{- include "common.annotationLines" .top | nindent 4 }}
    helm.sh/hook: {{ .hook }}
    # a failed Job is kept, because its log has the reason
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  backoffLimit: 0
  activeDeadlineSeconds: {{ add (int .top.Values.hooks.timeoutSeconds) 60 }}
  template:
    metadata:
      {{- include "common.annotations" .top | nindent 6 }}
      labels: {{- include "common.podLabels" .top | nindent 8 }}
        app.kubernetes.io/component: volume
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .top.Release.Name }}-volume
      automountServiceAccountToken: true
      enableServiceLinks: false
      securityContext: {{- include "common.podSecurity" .top | nindent 8 }}
      {{- include "common.pullSecrets" .top | nindent 6 }}
      {{- include "common.placement" .top.Values.hooks | nindent 6 }}
      containers:
      - name: volume
        image: {{ include "common.image" (dict "top" .top "image" .top.Values.hooks.image) }}
        imagePullPolicy: {{ .top.Values.hooks.image.pullPolicy }}
        command: [python, /etc/sluicegate/volume.py, {{ .verb }}]
        env:
        - {name: VOLUME, value: {{ include "sluicegate.volume" .top | quote }}}
        - name: NAMESPACE
          valueFrom:
            fieldRef: {fieldPath: metadata.namespace}
        - {name: TIMEOUT_S, value: {{ .top.Values.hooks.timeoutSeconds | quote }}}
        resources:
          requests: {cpu: 10m, memory: 64Mi}
          limits: {memory: 128Mi}
        securityContext: {{- include "common.containerSecurity" .top | nindent 10 }}
        volumeMounts:
        - {name: script, mountPath: /etc/sluicegate, readOnly: true}
      volumes:
      - name: script
        configMap: {name: {{ .top.Release.Name }}-volume}
{{- end -}}
