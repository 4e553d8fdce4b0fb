{{/* The account that drivers run as, and its rights: those of operators/deploy/job, where each is explained.
Takes (dict "top" ROOT "name" NAME "annotations" DICT). */}}
{{- define "common.driverAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "common.driverMeta" . | nindent 2 }}
# pods that the operator makes ask for it themselves: drivers do, executors do not
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- include "common.driverMeta" . | nindent 2 }}
rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- include "common.driverMeta" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .top.Release.Namespace }}
{{- end -}}

{{- define "common.driverMeta" -}}
name: {{ .name }}
namespace: {{ .top.Release.Namespace }}
labels: {{- include "common.labels" .top | nindent 2 }}
{{- with .annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
