{{- define "object-store.secretName" -}}
{{- .Values.auth.existingSecret | default (include "common.fullname" .) -}}
{{- end -}}

{{- define "object-store.scheme" -}}
{{ ternary "https" "http" .Values.tls.enabled }}
{{- end -}}
