{{- define "operator.check" -}}
{{- if and .Values.watch.all .Values.watch.namespaces -}}
{{- fail (printf "operator: watch.all is true and watch.namespaces names %s. Set watch.all to false for these only, or leave the list empty for all." (join ", " .Values.watch.namespaces)) -}}
{{- end -}}
{{- if not (or .Values.watch.all .Values.watch.namespaces) -}}
{{- fail "operator: watch.all is false and watch.namespaces is empty: it would serve nothing. Name namespaces, or set watch.all." -}}
{{- end -}}
{{- end -}}

{{- define "operator.subject" -}}
- kind: ServiceAccount
  name: {{ include "common.fullname" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
