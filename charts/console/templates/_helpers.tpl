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
