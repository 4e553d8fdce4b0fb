{{/* Parts of pods: image, security, scheduling. */}}

{{/*
REGISTRY/REPOSITORY:TAG, or @DIGEST; images have the version of the charts. Takes (dict "top" ROOT "image" IMAGE). Without a registry it is
localhost: only an image that was loaded into the node is found, never one of a public registry.
*/}}
{{- define "common.image" -}}
{{- $registry := .image.registry | default ((.top.Values.global).imageRegistry) | default "localhost" -}}
{{- trimSuffix "/" $registry }}/{{ .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .top.Chart.Version }}{{ end -}}
{{- end -}}

{{- define "common.pullSecrets" -}}
{{- with concat .Values.imagePullSecrets ((.Values.global).imagePullSecrets | default list) | uniq }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* By default the restricted Pod Security Standard; the images' user is numeric. */}}
{{- define "common.podSecurity" -}}
{{ toYaml .Values.podSecurityContext }}
{{- end -}}

{{- define "common.containerSecurity" -}}
{{ toYaml .Values.containerSecurityContext }}
{{- end -}}

{{- define "common.envFrom" -}}
{{- with .Values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* Which nodes pods may run on. Takes values with nodeSelector, tolerations and affinity. */}}
{{- define "common.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Scheduling of pods. Takes (dict "top" ROOT "component" NAME). */}}
{{- define "common.scheduling" -}}
{{- $values := .top.Values }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- include "common.placement" $values }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
{{- toYaml $values.topologySpreadConstraints | nindent 0 }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "common.selector" $.top | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A pod of `helm test`. Takes (dict "top" ROOT). */}}
{{- define "common.testMeta" -}}
name: {{ include "common.fullname" .top }}-test
namespace: {{ .top.Release.Namespace }}
labels: {{- include "common.labels" .top | nindent 2 }}
  app.kubernetes.io/component: test
  {{ include "common.clientLabel" .top }}: "true"
annotations:
  {{- include "common.annotationLines" .top | nindent 2 }}
  helm.sh/hook: test
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "common.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "common.fullname" .top }}
  namespace: {{ .namespace | default .top.Release.Namespace }}
  {{- include "common.annotations" .top | nindent 2 }}
  labels: {{- include "common.labels" .top | nindent 4 }}
spec:
  maxUnavailable: {{ .top.Values.podDisruptionBudget.maxUnavailable }}
  # a pod that never becomes ready must not block the drain of a node
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "common.selector" .top | nindent 6 }}
      app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The volume of each pod of a StatefulSet; it is kept when the release is uninstalled. */}}
{{- define "common.claim" -}}
persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}
volumeClaimTemplates:
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: data
    labels: {{- include "common.selector" . | nindent 6 }}
    {{- with merge (.annotations | default dict) .Values.persistence.annotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    accessModes: {{- toYaml .Values.persistence.accessModes | nindent 4 }}
    {{- with .Values.persistence.storageClass }}
    storageClassName: {{ ternary "" . (eq . "-") | quote }}
    {{- end }}
    resources:
      requests: {storage: {{ .Values.persistence.size }}}
{{- end -}}
