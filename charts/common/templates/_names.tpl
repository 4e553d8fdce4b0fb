{{/* Names and labels. Each takes the calling chart's root context. */}}

{{/* RELEASE-CHART, or RELEASE if that contains the chart's name. */}}
{{- define "common.fullname" -}}
{{- $chart := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $chart .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $chart | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Selector labels of pods; they cannot change in an upgrade. */}}
{{- define "common.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "common.labels" -}}
{{ include "common.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: sluicegate
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- include "common.labelLines" . }}
{{- end -}}

{{/* Labels of pods. */}}
{{- define "common.podLabels" -}}
{{ include "common.selector" . }}
{{- include "common.labelLines" . }}
{{- end -}}

{{/* commonLabels, each on a line of its own, after an empty one; those of the chart win over global ones. */}}
{{- define "common.labelLines" -}}
{{- with merge dict (.Values.commonLabels | default dict) ((.Values.global).commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* commonAnnotations as lines; those of the chart win over global ones. */}}
{{- define "common.annotationLines" -}}
{{- with merge dict (.Values.commonAnnotations | default dict) ((.Values.global).commonAnnotations | default dict) }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{/* The field `annotations` of an object that has only the common ones; nothing if there are none. */}}
{{- define "common.annotations" -}}
{{- include "common.annotationsWith" (dict "top" .) -}}
{{- end -}}

{{/* The field `annotations` with the common ones and the object's. Takes (dict "top" ROOT "own" DICT). */}}
{{- define "common.annotationsWith" -}}
{{- with merge dict (.own | default dict) (include "common.annotationLines" .top | fromYaml) }}
{{- dict "annotations" . | toYaml }}
{{- end }}
{{- end -}}

{{/* Objects of values, as they are or as text that is a template. */}}
{{- define "common.extraObjects" -}}
{{- range .Values.extraObjects }}
---
{{ tpl (kindIs "string" . | ternary . (toYaml .)) $ }}
{{- end }}
{{- end -}}

{{/* The label that admits a pod of the namespace to this component. */}}
{{- define "common.clientLabel" -}}
{{ include "common.fullname" . }}-client
{{- end -}}

{{/* A value as text; numbers without an exponent such as 1e+09. */}}
{{- define "common.plain" -}}
{{- if kindIs "float64" . }}{{ toJson . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}
