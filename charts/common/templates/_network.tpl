{{/* Rules of NetworkPolicies. */}}

{{/* DNS by port, because clusters run it in different namespaces. */}}
{{- define "common.dnsEgress" -}}
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
{{- end -}}

{{/* Clients of a component: jobs of the namespace, labelled pods, and the peers in values. */}}
{{- define "common.clients" -}}
- podSelector:
    matchExpressions:
    - {key: sluicegate.dev/role, operator: In, values: [driver, executor]}
- podSelector:
    matchLabels:
      {{ include "common.clientLabel" . }}: "true"
{{- with .Values.networkPolicy.clients }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The port of a URL, explicit or by its scheme. */}}
{{- define "common.portOf" -}}
{{- $url := urlParse . -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}

{{/* The name, labels and pods of a policy. Takes (dict "top" ROOT "component" NAME). */}}
{{- define "common.policyHead" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "common.fullname" .top }}{{ with .suffix }}-{{ . }}{{ end }}
  namespace: {{ .namespace | default .top.Release.Namespace }}
  {{- include "common.annotations" .top | nindent 2 }}
  labels: {{- include "common.labels" .top | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "common.selector" .top | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
  policyTypes: [Ingress, Egress]
{{- end -}}
