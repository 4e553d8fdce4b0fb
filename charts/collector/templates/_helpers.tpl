{{- define "collector.config" -}}
{{- if .Values.config -}}
{{ toYaml .Values.config }}
{{- else -}}
{{- $exporters := list "debug" -}}
{{- if .Values.file.enabled }}{{ $exporters = append $exporters "file" }}{{ end -}}
{{- if .Values.export.otlp }}{{ $exporters = append $exporters "otlp" }}{{ end -}}
{{- if .Values.export.otlphttp }}{{ $exporters = append $exporters "otlphttp" }}{{ end -}}
extensions:
  health_check: {endpoint: "0.0.0.0:13133"}
receivers:
  otlp:
    protocols:
      grpc: {endpoint: "0.0.0.0:4317"}
      http: {endpoint: "0.0.0.0:4318"}
processors:
  # refuses data, which exporters send again, before the kernel kills it
  memory_limiter: {check_interval: 1s, limit_percentage: 80, spike_limit_percentage: 20}
  batch: {timeout: 1s}
exporters:
  # counts in the log
  debug: {verbosity: basic}
  {{- if .Values.file.enabled }}
  file:
    path: /var/lib/otelcol/traces.json
    rotation: {max_megabytes: {{ int .Values.file.maxMegabytes }}, max_backups: 2}
  {{- end }}
  {{- $tls := dict }}
  {{- if .Values.export.authoritySecret }}{{ $_ := set $tls "ca_file" "/etc/otelcol-tls/ca.crt" }}{{ end }}
  {{- $backend := dict "headers" .Values.export.headers }}
  {{- with .Values.export.otlp }}
  otlp: {{ merge (dict "endpoint" . "tls" (merge (dict "insecure" $.Values.export.insecure) $tls)) $backend | toJson }}
  {{- end }}
  {{- with .Values.export.otlphttp }}
  otlphttp: {{ merge (dict "endpoint" . "tls" $tls) $backend | toJson }}
  {{- end }}
service:
  extensions: [health_check]
  pipelines:
    traces: {receivers: [otlp], processors: [memory_limiter, batch], exporters: [{{ join ", " $exporters }}]}
{{- end -}}
{{- end -}}
