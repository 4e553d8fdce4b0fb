{{/* The addresses as a list in YAML. */}}
{{- define "console.addresses" -}}
{{- if not .Values.addresses -}}
{{- fail "console: addresses is empty: there would be nothing to show. Name s3://BUCKET/PREFIX of a CheckpointVolume." -}}
{{- end -}}
{{- range .Values.addresses }}
- {{ tpl . $ | quote }}
{{- end }}
{{- end -}}

{{/* The variables by which clients of S3 reach the store. */}}
{{- define "console.storeEnv" -}}
{{- $endpoint := tpl .Values.store.endpoint . -}}
- {name: AWS_REGION, value: {{ .Values.store.region | quote }}}
{{- with $endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- if hasPrefix "http://" $endpoint }}
- {name: AWS_ALLOW_HTTP, value: "true"}
{{- end }}
{{- with tpl .Values.store.existingSecret . }}
{{- range $name, $key := dict "AWS_ACCESS_KEY_ID" "accessKeyId" "AWS_SECRET_ACCESS_KEY" "secretAccessKey" }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ tpl $.Values.store.existingSecret $ }}, key: {{ $key }}}
{{- end }}
{{- end }}
{{- if tpl .Values.store.authoritySecret . }}
- {name: SSL_CERT_FILE, value: /etc/sluicegate/store/ca.crt}
{{- end }}
{{- end -}}

{{/* The CA certificate of the store as a list in YAML, which may be empty: a mount, and its volume. */}}
{{- define "console.authorityMount" -}}
{{- if tpl .Values.store.authoritySecret . -}}
- {name: store-authority, mountPath: /etc/sluicegate/store, readOnly: true}
{{- end }}
{{- end -}}

{{- define "console.authorityVolume" -}}
{{- with tpl .Values.store.authoritySecret . -}}
- name: store-authority
  secret:
    secretName: {{ . }}
    items:
    - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end -}}

{{/* The ports of the store as a list in YAML. */}}
{{- define "console.storePorts" -}}
{{- $ports := list -}}
{{- range .Values.networkPolicy.storePorts }}{{ $ports = append $ports (int .) }}{{ end -}}
{{- with tpl .Values.store.endpoint . }}{{ $ports = append $ports (include "common.portOf" . | int) }}{{ end -}}
{{- range uniq $ports }}
- {port: {{ . }}}
{{- end }}
{{- end -}}

{{/* The prices as a list in YAML. */}}
{{- define "console.prices" -}}
{{- with .Values.price }}
{{- if or .coreHour .gibHour }}
- --price-core-hour={{ include "common.plain" .coreHour }}
- --price-gib-hour={{ include "common.plain" .gibHour }}
- --currency={{ .currency }}
{{- end }}
{{- end }}
{{- end -}}

{{/* How people act on jobs, as a list in YAML. */}}
{{- define "console.actions" -}}
{{- with .Values.actions }}
{{- if .enabled }}
{{- if not (tpl .proxySecret $) -}}
{{- fail "console: actions.enabled needs actions.proxySecret: without a secret of the login proxy, anyone who reaches the port could claim to be anyone." -}}
{{- end }}
{{- if not (or .constrained .users) -}}
{{- fail "console: actions.constrained is false and actions.users is empty: the console could do everything that any user of the cluster may. Name the users, or set actions.constrained to true (Kubernetes 1.36)." -}}
{{- end }}
- --actions
- --proxy-secret-file=/etc/sluicegate/proxy/secret
- --user-header={{ .userHeader }}
- --groups-header={{ .groupsHeader }}
{{- range .groups }}
- {{ printf "--group=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Name of objects without a namespace: releases in different namespaces may have the same name. */}}
{{- define "console.clusterName" -}}
{{ include "common.fullname" . }}.{{ .Release.Namespace }}
{{- end -}}

{{- define "console.subject" -}}
- kind: ServiceAccount
  name: {{ include "common.fullname" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
