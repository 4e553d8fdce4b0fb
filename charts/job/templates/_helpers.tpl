{{- define "job.name" -}}
{{- $name := .Values.fullnameOverride | default .Release.Name -}}
{{- if gt (len $name) 52 -}}
{{- fail (printf "job: the name %s has %d characters, and may have 52: it is in labels and names of pods. Set fullnameOverride." $name (len $name)) -}}
{{- end -}}
{{ $name }}
{{- end -}}

{{/* Variables of a container, as a list under `env`. Takes (dict "top" ROOT "container" driver|executor). */}}
{{- define "job.env" -}}
env:
{{- with .top.Values.connections }}
{{- if .enabled }}
- name: SLUICEGATE_KAFKA
  {{- if .kafka }}
  value: {{ .kafka | quote }}
  {{- else }}
  valueFrom:
    configMapKeyRef: {name: {{ .platform }}-connections, key: SLUICEGATE_KAFKA}
  {{- end }}
- name: SLUICEGATE_MYSQL
  valueFrom:
    secretKeyRef: {name: {{ .mysql.secret | default (printf "%s-mysql" .platform) }}, key: {{ .mysql.key }}}
- name: SLUICEGATE_MYSQL_TLS
  valueFrom:
    configMapKeyRef: {name: {{ .platform }}-connections, key: SLUICEGATE_MYSQL_TLS, optional: true}
{{- if and .kafkaConfig .strimzi.cluster }}
{{- fail "job: connections.kafkaConfig and connections.strimzi.cluster are both set: a driver reads one kafka.properties. Remove one of them." }}
{{- end }}
{{- if and (or .kafkaConfig .strimzi.cluster) (eq $.container "driver") }}
# its clients alone read it, and give executors what is in it
- {name: SLUICEGATE_KAFKA_CONFIG, value: /etc/kafka-client/kafka.properties}
{{- end }}
{{- else if or .kafka .kafkaConfig .strimzi.cluster .mysql.secret .mysql.authority }}
{{- fail "job: connections.enabled is false and connections are given: they would have no effect. Enable them, or say it all in env." }}
{{- end }}
{{- end }}
{{- with .top.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A pod template of spec with our variables in its container, as JSON.
Takes (dict "top" ROOT "container" driver|executor). */}}
{{- define "job.template" -}}
{{- $values := .top.Values -}}
{{- $template := dig .container "template" dict $values.spec | deepCopy -}}
{{- $pod := $template.spec | default dict -}}
{{- $ours := dict "name" .container -}}
{{- $others := list -}}
{{- range $pod.containers -}}
{{- if eq .name $.container }}{{ $ours = . }}{{ else }}{{ $others = append $others . }}{{ end -}}
{{- end -}}
{{- with concat ((include "job.env" . | fromYaml).env | default list) ($ours.env | default list) }}{{ $_ := set $ours "env" . }}{{ end -}}
{{- with concat $values.envFrom ($ours.envFrom | default list) }}{{ $_ := set $ours "envFrom" . }}{{ end -}}
{{- $mounted := list -}}
{{- with $values.connections.mysql.authority -}}
{{- $items := list (dict "key" "ca.crt" "path" "ca.crt") -}}
{{- $mounted = append $mounted (dict "name" "mysql-tls" "secret" (dict "secretName" . "items" $items)) -}}
{{- end -}}
{{- with $values.connections.kafkaConfig -}}
{{- if eq $.container "driver" -}}
{{- $mounted = append $mounted (dict "name" "kafka-client" "secret" (dict "secretName" .)) -}}
{{- end -}}
{{- end -}}
{{- if and $values.connections.strimzi.cluster (eq .container "driver") -}}
{{- $mounted = append $mounted (include "job.strimziVolume" $values.connections.strimzi | fromYaml) -}}
{{- end -}}
{{- range $mounted -}}
{{- $mount := dict "name" .name "mountPath" (printf "/etc/%s" .name) "readOnly" true -}}
{{- $_ := set $ours "volumeMounts" (append ($ours.volumeMounts | default list) $mount) -}}
{{- $_ := set $pod "volumes" (append ($pod.volumes | default list) .) -}}
{{- end -}}
{{- if or (gt (len $ours) 1) $others }}{{ $_ := set $pod "containers" (prepend $others $ours) }}{{ end -}}
{{- if $pod }}{{ $_ := set $template "spec" $pod }}{{ end -}}
{{- toJson $template -}}
{{- end -}}

{{/* One folder of what Strimzi and the chart kafka make. The kubelet waits until all of it exists, and the next
pod sees a renewed certificate: nothing copies a Secret. */}}
{{- define "job.strimziVolume" -}}
name: kafka-client
projected:
  sources:
  - configMap: {name: {{ .cluster }}-client}
  - secret:
      name: {{ .cluster }}-cluster-ca-cert
      items: [{key: ca.crt, path: ca.crt}]
  - secret:
      name: {{ .user | default (printf "%s-jobs" .cluster) }}
      items: [{key: user.crt, path: user.crt}, {key: user.key, path: user.key}]
{{- end -}}
