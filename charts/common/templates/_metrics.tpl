{{/* Metrics of a server: who may scrape them, and the Prometheus operator's object for it. */}}

{{/* Rule of a NetworkPolicy that admits scrapes. Takes (dict "top" ROOT "port" NUMBER). */}}
{{- define "common.scrapeIngress" -}}
{{- if .top.Values.metrics.enabled }}
{{- with .top.Values.networkPolicy.metricsFrom }}
- ports:
  - {port: {{ $.port }}}
  from: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* PodMonitor of the port `metrics` of a server's pods. Takes (dict "top" ROOT "component" NAME). */}}
{{- define "common.podMonitor" -}}
{{- if .top.Values.metrics.podMonitor.enabled }}
{{- if not .top.Values.metrics.enabled }}
{{- fail (printf "%s: metrics.podMonitor.enabled is true and no metrics are served. Set metrics.enabled too." .top.Chart.Name) }}
{{- end }}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ include "common.fullname" .top }}
  namespace: {{ .top.Release.Namespace }}
  {{- include "common.annotations" .top | nindent 2 }}
  labels: {{- include "common.labels" .top | nindent 4 }}
    {{- with .top.Values.metrics.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels: {{- include "common.selector" .top | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  podMetricsEndpoints:
  - port: metrics
    path: /metrics
    interval: {{ .top.Values.metrics.podMonitor.interval }}
{{- end }}
{{- end -}}
