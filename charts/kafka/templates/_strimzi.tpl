{{/* Parts of the objects that Strimzi reads. */}}

{{/* Takes (dict "top" ROOT "name" NAME), and optionally "labels" DICT and "keep" true: what holds data, or whose
deletion deletes data, stays when the release is uninstalled. */}}
{{- define "kafka.strimziMeta" -}}
name: {{ .name }}
namespace: {{ .top.Release.Namespace }}
labels: {{- include "common.labels" .top | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if .keep }}
annotations: {{- include "common.keptAnnotations" .top | nindent 2 }}
{{- else }}
{{- include "common.annotations" .top | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "kafka.strimziSpec" -}}
kafka:
  {{- with .Values.strimzi.version }}
  version: {{ . }}
  {{- end }}
  listeners:
  - name: clients
    port: 9093
    type: internal
    tls: true
    authentication: {type: tls}
    {{- if .Values.networkPolicy.enabled }}
    networkPolicyPeers: {{- include "common.clients" . | nindent 4 }}
    {{- end }}
  {{- with .Values.strimzi.listeners }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  authorization: {type: simple}
  {{- with .Values.strimzi.rack }}
  rack: {type: topology-label, topologyKey: {{ . }}}
  {{- end }}
  config: {{- merge (include "kafka.durability" . | fromYaml) .Values.config (include "kafka.defaults" .Values.strimzi.replicas | fromYaml) | toYaml | nindent 4 }}
# creates topics and users
entityOperator:
  topicOperator: {}
  userOperator: {}
{{- end -}}

{{- define "kafka.nodePoolSpec" -}}
replicas: {{ .Values.strimzi.replicas }}
roles: [controller, broker]
jvmOptions: {-Xms: {{ .Values.heap }}, -Xmx: {{ .Values.heap }}}
resources: {{- toYaml .Values.resources | nindent 2 }}
storage:
  type: jbod
  volumes:
  - id: 0
    type: persistent-claim
    kraftMetadata: shared
    size: {{ .Values.persistence.size }}
    {{- with .Values.persistence.storageClass }}
    class: {{ ternary "" . (eq . "-") | quote }}
    {{- end }}
    deleteClaim: false
{{- end -}}

{{/* The object of a topic: topics may have names that objects may not. Takes (dict "cluster" NAME "topic" NAME). */}}
{{- define "kafka.topicObject" -}}
{{- $plain := regexReplaceAll "[^a-z0-9.-]+" (lower .topic) "-" | trunc 150 | trimAll "-." -}}
{{- printf "%s-%s" .cluster (ternary $plain (printf "%s-%s" $plain (sha256sum .topic | trunc 8) | trimPrefix "-") (eq $plain .topic)) -}}
{{- end -}}
