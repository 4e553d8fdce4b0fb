{{/* Namespace of the operator's own resources. */}}
{{- define "operator.namespace" -}}
{{ tpl .Values.namespace.name . | default .Release.Namespace }}
{{- end -}}

{{/* Name of objects without a namespace: releases in different namespaces may have the same name. */}}
{{- define "operator.clusterName" -}}
{{ include "common.fullname" . }}.{{ include "operator.namespace" . }}
{{- end -}}

{{/* The namespaces that are watched, as {"all": [...]}; empty: all. */}}
{{- define "operator.watched" -}}
{{- $names := list -}}
{{- range .Values.watch.namespaces }}{{ $names = append $names (tpl . $) }}{{ end -}}
{{- dict "all" (uniq $names) | toJson -}}
{{- end -}}

{{- define "operator.check" -}}
{{- if and .Values.watch.all .Values.watch.namespaces -}}
{{- fail (printf "operator: watch.all is true and watch.namespaces names %s. Set watch.all to false for these only, or leave the list empty for all." (join ", " .Values.watch.namespaces)) -}}
{{- end -}}
{{- if not (or .Values.watch.all .Values.watch.namespaces) -}}
{{- fail "operator: watch.all is false and watch.namespaces is empty: it would serve nothing. Name the namespaces of your jobs, or set watch.all to true if the operator may create pods in every namespace and read every Secret." -}}
{{- end -}}
{{- $own := include "operator.namespace" . -}}
{{- if and (has $own (include "operator.watched" . | fromJson).all) (not .Values.watch.ownNamespace) -}}
{{- fail (printf "operator: watch.namespaces names %s, the operator's own namespace: the drivers of jobs there may create pods, which could run as the operator. Install the operator into another namespace (namespace.name), or set watch.ownNamespace to true if only you create jobs." $own) -}}
{{- end -}}
{{- end -}}

{{- define "operator.subject" -}}
- kind: ServiceAccount
  name: {{ include "common.fullname" . }}
  namespace: {{ include "operator.namespace" . }}
{{- end -}}

{{/* The address of the console that Events link to, empty for none. */}}
{{- define "operator.consoleURL" -}}
{{- .Values.consoleURL | default .Values.metrics.alerts.consoleURL -}}
{{- end -}}
