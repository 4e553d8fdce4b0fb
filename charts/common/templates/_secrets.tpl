{{/* Secrets that are generated once: values in the cluster are kept. Without a cluster
(`helm template`, and tools that deploy with it) they are generated anew each time: use existingSecret there. */}}

{{/* A key of a Secret, base64: the existing value, the given one, or a generated one.
Takes (dict "top" ROOT "name" SECRET "key" KEY "given" TEXT "length" NUMBER). */}}
{{- define "common.kept" -}}
{{- $there := lookup "v1" "Secret" .top.Release.Namespace .name -}}
{{- $old := dig "data" .key "" (default dict $there) -}}
{{- if .given -}}
{{- .given | b64enc -}}
{{- else if $old -}}
{{- $old -}}
{{- else -}}
{{- randAlphaNum (int (.length | default 24)) | b64enc -}}
{{- end -}}
{{- end -}}

{{/* Annotations of a Secret whose passwords are also in the data of a volume: it is kept with the volume. */}}
{{- define "common.keptAnnotations" -}}
{{- include "common.annotationLines" . }}
helm.sh/resource-policy: keep
{{- end -}}

{{- define "common.tlsSecretName" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "common.fullname" .)) -}}
{{- end -}}

{{/* data of a kubernetes.io/tls Secret with a CA of its own, kept once it exists. An upgrade
that changes the names needs another certificate: delete the Secret first.
Takes (dict "top" ROOT "names" LIST). */}}
{{- define "common.tlsData" -}}
{{- $name := include "common.tlsSecretName" .top -}}
{{- $there := lookup "v1" "Secret" .top.Release.Namespace $name -}}
{{- if and $there (dig "data" "tls.key" "" $there) -}}
{{- range list "ca.crt" "tls.crt" "tls.key" }}
{{ . }}: {{ index $there.data . }}
{{- end }}
{{- else -}}
{{- $days := int .top.Values.tls.validityDays -}}
{{- $ca := genCA (printf "%s-ca" (include "common.fullname" .top)) $days -}}
{{- $made := genSignedCert (first .names) (list "127.0.0.1") (append .names "localhost") $days $ca }}
ca.crt: {{ $ca.Cert | b64enc }}
tls.crt: {{ $made.Cert | b64enc }}
tls.key: {{ include "common.pkcs8" $made.Key | b64enc }}
{{- end -}}
{{- end -}}

{{/* An RSA key as PKCS#8 (RFC 5958), which is the only form that Kafka reads; genSignedCert makes
PKCS#1 (RFC 8017). That is wrapped: SEQUENCE { 0, { rsaEncryption, NULL }, OCTET STRING { key } }, the
lengths in two bytes each, as those of keys of 1024 to 65535 bits are. */}}
{{- define "common.pkcs8" -}}
{{- $body := regexReplaceAll "-----[^-]+-----|\\s" . "" | b64dec -}}
{{- $size := len $body -}}
{{- $inner := include "common.twoBytes" $size -}}
{{- $outer := include "common.twoBytes" (add $size 22) -}}
{{- $head := printf "%s%s%s%s" (b64dec "MII=") $outer (b64dec "AgEAMA0GCSqGSIb3DQEBAQUABII=") $inner -}}
-----BEGIN PRIVATE KEY-----
{{ regexReplaceAll "(.{64})" (printf "%s%s" $head $body | b64enc) "${1}\n" | trimSuffix "\n" }}
-----END PRIVATE KEY-----
{{ end -}}

{{/* A number below 65536 as two bytes, by way of 18 bits of base64, because templates have no bytes. */}}
{{- define "common.twoBytes" -}}
{{- $digits := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" -}}
{{- $bits := mul . 4 -}}
{{- $text := "" -}}
{{- range list 4096 64 1 -}}
{{- $digit := int (mod (div $bits .) 64) -}}
{{- $text = printf "%s%s" $text (substr $digit (int (add1 $digit)) $digits) -}}
{{- end -}}
{{- printf "%s=" $text | b64dec -}}
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

{{- define "common.checkTLS" -}}
{{- if and .Values.tls.existingSecret (not .Values.tls.enabled) -}}
{{- fail (printf "%s: tls.existingSecret is set but tls.enabled is false: connections would be plain text. Set tls.enabled, or remove the Secret." .Chart.Name) -}}
{{- end -}}
{{- end -}}

{{/* The Secret of a certificate that the chart makes, if it is to. */}}
{{- define "common.tlsSecret" -}}
{{- include "common.checkTLS" . -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "common.tlsSecretName" . }}
  namespace: {{ .Release.Namespace }}
  {{- include "common.annotations" . | nindent 2 }}
  labels: {{- include "common.labels" . | nindent 4 }}
type: kubernetes.io/tls
data: {{- include "common.tlsData" (dict "top" . "names" (include "common.hosts" . | fromYamlArray)) | nindent 2 }}
{{- end -}}
{{- end -}}
