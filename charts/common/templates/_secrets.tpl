{{/* Secrets that are generated once. A template cannot do that: it is rendered again for each upgrade, and without
a cluster by tools such as Argo CD. It lists them, and a hook Job creates what is missing
(sluicegate_operator.hooks.secrets). */}}

{{/* Annotations of objects that outlive their release, in Helm and in Argo CD. */}}
{{- define "common.keptAnnotations" -}}
{{- include "common.annotationLines" . }}
helm.sh/resource-policy: keep
argocd.argoproj.io/compare-options: IgnoreExtraneous
argocd.argoproj.io/sync-options: Prune=false,Delete=false
{{- end -}}

{{/* The Job that creates Secrets, and its rights, which exist only while it runs.
Takes (dict "top" ROOT "secrets" LIST), a list of sluicegate_operator.hooks.secrets.SecretSpec; and, for Secrets that
depend on objects of the release, "hook" and "suffix". */}}
{{- define "common.secretsJob" -}}
{{- $top := .top -}}
{{- $component := .suffix | default "secrets" -}}
{{- $name := printf "%s-%s" (include "common.fullname" $top) $component -}}
{{- $hook := .hook | default "pre-install,pre-upgrade" -}}
{{- $own := dict -}}
{{- $read := list -}}
{{- range .secrets -}}
{{- $namespace := .namespace | default $top.Release.Namespace -}}
{{- $_ := set $own $namespace (append (get $own $namespace | default list) .name) -}}
{{- range .inherited -}}{{- $read = append $read (splitList "/" . | first) -}}{{- end -}}
{{- range .text -}}
{{- range regexFindAll "[$][{][^/{}]+/" . -1 -}}{{- $read = append $read (trimAll "${/" .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $metadata := dict "labels" (include "common.labels" $top | fromYaml) "annotations" (include "common.keptAnnotations" $top | fromYaml) -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "common.hookMeta" (dict "top" $top "name" $name "hook" $hook "weight" -10) | nindent 2 }}
automountServiceAccountToken: false
{{- range $namespace, $names := $own }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{- include "common.hookMeta" (dict "top" $top "name" $name "hook" $hook "weight" -10 "namespace" $namespace) | nindent 2 }}
rules:
# creates the Secrets; RBAC cannot restrict create to a name
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# completes them
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{- toYaml $names | nindent 2 }}
  verbs: [get, patch]
{{- with and (eq $namespace $top.Release.Namespace) $read }}
# reads those that they refer to
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{- uniq . | toYaml | nindent 2 }}
  verbs: [get]
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{- include "common.hookMeta" (dict "top" $top "name" $name "hook" $hook "weight" -10 "namespace" $namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ $name }}
  namespace: {{ $top.Release.Namespace }}
{{- end }}
---
{{ include "common.hookJob" (dict "top" $top "name" $name "component" $component "hook" $hook "command" "secrets" "image" $top.Values.secretsJob.image "timeout" $top.Values.secretsJob.timeoutSeconds "ports" $top.Values.secretsJob.apiServerPorts "env" (list (dict "name" "NAMESPACE" "value" $top.Release.Namespace) (dict "name" "SECRETS" "value" (toJson .secrets)) (dict "name" "METADATA" "value" (toJson $metadata)))) }}
{{- end -}}

{{- define "common.tlsSecretName" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "common.fullname" .)) -}}
{{- end -}}

{{/* The Secrets of a certificate that the chart generates, as {"all": LIST}: an authority, and what it issues. */}}
{{- define "common.tlsSecrets" -}}
{{- $all := list -}}
{{- if eq (include "common.tlsSource" .) "chart" -}}
{{- $name := include "common.tlsSecretName" . -}}
{{- $all = append $all (dict "name" (printf "%s-ca" $name) "type" "kubernetes.io/tls" "authority" true) -}}
{{- $all = append $all (dict "name" $name "type" "kubernetes.io/tls" "issuer" (printf "%s-ca" $name) "hosts" (include "common.hosts" . | fromYamlArray) "days" (int .Values.tls.validityDays)) -}}
{{- end -}}
{{- dict "all" $all | toJson -}}
{{- end -}}

{{/* Where the certificate comes from: chart, issuer (cert-manager), secret (yours); empty: no TLS. */}}
{{- define "common.tlsSource" -}}
{{- $issuer := .Values.tls.certManager.issuerRef.name -}}
{{- if not .Values.tls.enabled -}}
{{- if or .Values.tls.existingSecret $issuer -}}
{{- fail (printf "%s: tls.existingSecret or tls.certManager is set but tls.enabled is false: connections would be plain text. Set tls.enabled, or remove it." .Chart.Name) -}}
{{- end -}}
{{- else if and .Values.tls.existingSecret $issuer -}}
{{- fail (printf "%s: tls.existingSecret and tls.certManager.issuerRef are both set. Remove one of them." .Chart.Name) -}}
{{- else -}}
{{ if .Values.tls.existingSecret }}secret{{ else if $issuer }}issuer{{ else }}chart{{ end }}
{{- end -}}
{{- end -}}

{{/* DNS names in a component's certificate: its Service and its pods. */}}
{{- define "common.hosts" -}}
{{- $top := . -}}
{{- $host := include "common.fullname" . -}}
{{- range $base := list $host (printf "*.%s-headless" $host) -}}
{{- range $end := list "" ".svc" ".svc.cluster.local" }}
- {{ printf "%s.%s%s" $base $top.Release.Namespace $end | quote }}
{{- end }}
{{- end }}
- {{ $host | quote }}
{{- end -}}

{{/* The Certificate of cert-manager, if an issuer is named. It is renewed with a new key. */}}
{{- define "common.certificate" -}}
{{- if eq (include "common.tlsSource" .) "issuer" -}}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ include "common.tlsSecretName" . }}
  namespace: {{ .Release.Namespace }}
  {{- include "common.annotations" . | nindent 2 }}
  labels: {{- include "common.labels" . | nindent 4 }}
spec:
  secretName: {{ include "common.tlsSecretName" . }}
  issuerRef: {{- toYaml .Values.tls.certManager.issuerRef | nindent 4 }}
  commonName: {{ include "common.tlsSecretName" . }}
  dnsNames: {{- append (include "common.hosts" . | fromYamlArray) "localhost" | toYaml | nindent 2 }}
  ipAddresses: [127.0.0.1]
  # Kafka's nodes are clients of each other
  usages: [digital signature, key encipherment, server auth, client auth]
  # Kafka reads no other form of a key
  privateKey: {algorithm: RSA, size: 2048, encoding: PKCS8, rotationPolicy: Always}
{{- end -}}
{{- end -}}
