{{/* The ServiceAccount of drivers and its Role.
Takes (dict "top" ROOT "name" NAME "annotations" DICT); "namespace" defaults to that of the release.

RBAC cannot distinguish a driver's own pods from others of the namespace. To separate jobs, give each a
namespace of its own.

The Role does not include configmaps, services and persistentvolumeclaims, which Spark's documentation lists:
the operator sets spark.kubernetes.executor.disableConfigMap, and the driver neither removes a Service nor owns
claims. A job that changes this, or uses claims with claimName=OnDemand, needs a Role of its own for
configmaps and persistentvolumeclaims (create, get, list, delete, deletecollection). An `ephemeral` volume in
executor.template gives each executor a claim without any permission. */}}
{{- define "common.driverAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "common.driverMeta" (merge (dict "marked" true) .) | nindent 2 }}
# the pods decide: drivers mount the token, executors do not
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- include "common.driverMeta" . | nindent 2 }}
rules:
# Reports progress in an annotation of its own pod (patch). In client mode Spark creates the executors, which its
# pod owns (get of its own pod, create), watches them, marks those that ended (patch), and removes one (delete) or,
# when it ends, all of them (deletecollection).
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
  namespace: {{ .namespace | default .top.Release.Namespace }}
{{- end -}}

{{- define "common.driverMeta" -}}
name: {{ .name }}
namespace: {{ .namespace | default .top.Release.Namespace }}
labels: {{- include "common.labels" .top | nindent 2 }}
  {{- if .marked }}
  # the operator runs jobs only with accounts that have it
  sluicegate.dev/driver-account: "true"
  {{- end }}
{{- include "common.annotationsWith" (dict "top" .top "own" .annotations) | nindent 0 }}
{{- end -}}
