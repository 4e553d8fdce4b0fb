{{- define "object-store.secretName" -}}
{{- .Values.auth.existingSecret | default (include "common.fullname" .) -}}
{{- end -}}

{{- define "object-store.scheme" -}}
{{ ternary "https" "http" .Values.tls.enabled }}
{{- end -}}

{{/* The Secret with the keys of a user. Takes (dict "top" ROOT "user" USER). */}}
{{- define "object-store.userSecret" -}}
{{- .user.existingSecret | default (printf "%s-user-%s" (include "common.fullname" .top) .user.name) -}}
{{- end -}}

{{/* The users for files/access.py, as JSON. */}}
{{- define "object-store.users" -}}
{{- $users := list -}}
{{- range .Values.users -}}
{{- $users = append $users (dict "name" .name "bucket" .bucket "prefix" (.prefix | default "") "readOnly" (.readOnly | default false)) -}}
{{- end -}}
{{- $users | toJson -}}
{{- end -}}

{{/* Environment and mounts of files/access.py, and its volumes. "keys" lists what is mounted of each Secret. */}}
{{- define "object-store.accessEnv" -}}
- {name: USERS, value: {{ include "object-store.users" . | quote }}}
- {name: KEYS, value: /etc/store/keys}
{{- end -}}

{{- define "object-store.accessMounts" -}}
- {name: access, mountPath: /etc/store/access, readOnly: true}
- {name: keys, mountPath: /etc/store/keys, readOnly: true}
{{- end -}}

{{- define "object-store.accessVolumes" -}}
- name: access
  configMap: {name: {{ include "common.fullname" .top }}-access}
- name: keys
  projected:
    sources:
    {{- range $user := .top.Values.users }}
    - secret:
        name: {{ include "object-store.userSecret" (dict "top" $.top "user" $user) }}
        items:
        {{- range $.keys }}
        - {key: {{ . }}, path: {{ $user.name }}/{{ . }}}
        {{- end }}
    {{- end }}
{{- end -}}

{{/* Two users with one name, or one's prefix within another's, would not be apart. One that only reads erases nothing. */}}
{{- define "object-store.checkUsers" -}}
{{- range $i, $user := .Values.users -}}
{{- if and $user.namespace $user.existingSecret (ne $user.namespace $.Release.Namespace) -}}
{{- fail (printf "object-store: user %s has namespace and existingSecret: the chart copies only Secrets that it makes, so jobs there would have no keys. Create the Secret in both namespaces and leave namespace empty, or remove existingSecret." $user.name) -}}
{{- end -}}
{{- range $j, $other := $.Values.users -}}
{{- if ne $i $j -}}
{{- if eq $user.name $other.name -}}
{{- fail (printf "object-store: two users are named %s: they would share their keys. Give each a name of its own." $user.name) -}}
{{- end -}}
{{- $outer := ternary "" (printf "%s/" $user.prefix) (empty $user.prefix) -}}
{{- if and (not (or $user.readOnly $other.readOnly)) (eq $user.bucket $other.bucket) (hasPrefix $outer (printf "%s/" $other.prefix)) -}}
{{- fail (printf "object-store: user %s may use %s/%s, which contains that of user %s: it could erase the other's checkpoints. Give each a prefix or a bucket of its own." $user.name $user.bucket $user.prefix $other.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Root's login, for pods that manage the store. */}}
{{- define "object-store.clientEnv" -}}
- name: ENDPOINT
  value: {{ include "object-store.scheme" . }}://{{ include "common.fullname" . }}:7070
- {name: AWS_REGION, value: {{ .Values.region | quote }}}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ include "object-store.secretName" . }}, key: accessKeyId}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ include "object-store.secretName" . }}, key: secretAccessKey}
{{- if .Values.tls.enabled }}
- {name: SSL_CERT_FILE, value: /etc/store/tls/ca.crt}
{{- end }}
{{- end -}}

{{/* The CA certificate for these pods, not the key. */}}
{{- define "object-store.caMount" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/store/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "object-store.caVolume" -}}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "common.tlsSecretName" . }}
    # the CA certificate, not the key
    items:
    - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end -}}
