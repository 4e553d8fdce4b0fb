{{/* Jobs before and after an install or upgrade, which run sluicegate_operator.hooks. */}}

{{/* metadata of an object that exists only during a hook. A Job that failed is retained, because its log has the
reason. Takes (dict "top" ROOT "name" NAME "hook" EVENTS "weight" NUMBER), and optionally "namespace"; "-": none. */}}
{{- define "common.hookMeta" -}}
name: {{ .name }}
{{- if ne (.namespace | default "") "-" }}
namespace: {{ .namespace | default .top.Release.Namespace }}
{{- end }}
labels: {{- include "common.labels" .top | nindent 2 }}
annotations:
  {{- include "common.annotationLines" .top | nindent 2 }}
  helm.sh/hook: {{ .hook }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* Such a Job and its NetworkPolicy. Takes a dict: top, name (also of its ServiceAccount), component, hook, command,
image, timeout in seconds, ports of the API server, env. */}}
{{- define "common.hookJob" -}}
{{- $meta := dict "top" .top "name" .name "hook" .hook -}}
{{- if .top.Values.networkPolicy.enabled -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{- include "common.hookMeta" (merge (dict "weight" -10) $meta) | nindent 2 }}
spec:
  podSelector:
    matchLabels: {{- include "common.selector" .top | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  policyTypes: [Ingress, Egress]
  ingress: []
  egress: {{- include "common.dnsEgress" .top | nindent 2 }}
  # the API server
  - ports:
    {{- range .ports }}
    - {port: {{ . }}}
    {{- end }}
---
{{ end -}}
apiVersion: batch/v1
kind: Job
metadata: {{- include "common.hookMeta" (merge (dict "weight" -5) $meta) | nindent 2 }}
spec:
  backoffLimit: 1
  activeDeadlineSeconds: {{ add 60 (mul 2 (int .timeout)) }}
  template:
    metadata:
      {{- include "common.annotations" .top | nindent 6 }}
      labels: {{- include "common.podLabels" .top | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      securityContext: {{- include "common.podSecurity" .top | nindent 8 }}
      {{- include "common.pullSecrets" .top | nindent 6 }}
      {{- include "common.placement" .top.Values | nindent 6 }}
      containers:
      - name: {{ .component }}
        image: {{ include "common.image" (dict "top" .top "image" .image) }}
        imagePullPolicy: {{ .top.Values.image.pullPolicy }}
        command: [python, -m, sluicegate_operator.hooks, {{ .command }}]
        args: [--timeout-s={{ .timeout }}]
        env: {{- toYaml .env | nindent 8 }}
        resources:
          requests: {cpu: 10m, memory: 64Mi}
          limits: {memory: 128Mi}
        securityContext: {{- include "common.containerSecurity" .top | nindent 10 }}
        volumeMounts:
        - {name: tmp, mountPath: /tmp}
      volumes:
      - {name: tmp, emptyDir: {}}
{{- end -}}
