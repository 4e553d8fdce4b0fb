{{/* FULLNAME-backup or FULLNAME-restore, as short as the name of a CronJob must be.
Takes (dict "top" ROOT "verb" backup|restore). */}}
{{- define "mysql.cronJobName" -}}
{{- include "common.fullname" .top | trunc 44 | trimSuffix "-" }}-{{ .verb -}}
{{- end -}}

{{- define "mysql.checkBackup" -}}
{{- $backup := .Values.backup -}}
{{- if and $backup.enabled $backup.s3.bucket $backup.existingClaim -}}
{{- fail "mysql: backup.s3.bucket and backup.existingClaim are both set. Backups are kept in one place: remove one of them." -}}
{{- end -}}
{{- if and $backup.enabled (not $backup.s3.bucket) (not $backup.existingClaim) -}}
{{- fail "mysql: backup.enabled is true, and backups have no place. Set backup.s3.bucket or backup.existingClaim." -}}
{{- end -}}
{{- end -}}

{{/* The container that runs files/backups.py. Takes (dict "top" ROOT "verb" store|fetch). */}}
{{- define "mysql.storeContainer" -}}
{{- $values := .top.Values.backup -}}
name: {{ .verb }}
image: {{ include "common.image" (dict "top" .top "image" $values.image) }}
imagePullPolicy: {{ .top.Values.image.pullPolicy }}
command: [python, /etc/backups/backups.py, {{ .verb }}, /backup/dump.sql.gz]
env:
# an upload is copied there first
- {name: TMPDIR, value: /backup}
- {name: BACKUP_KEEP, value: {{ $values.keep | quote }}}
- {name: BACKUP_NAME, value: {{ $values.restore | quote }}}
{{- if $values.existingClaim }}
- {name: BACKUP_URL, value: /backups}
{{- else }}
{{- $s3 := $values.s3 }}
- {name: BACKUP_URL, value: {{ printf "s3://%s/%s" $s3.bucket $s3.prefix | trimSuffix "/" | quote }}}
- {name: AWS_REGION, value: {{ $s3.region | quote }}}
{{- with tpl $s3.endpoint .top }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- if hasPrefix "http:" . }}
- {name: AWS_ALLOW_HTTP, value: "true"}
{{- end }}
{{- end }}
{{- with tpl $s3.existingSecret .top }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: accessKeyId}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: secretAccessKey}
{{- end }}
{{- if $s3.authoritySecret }}
- {name: SSL_CERT_FILE, value: /etc/store-tls/ca.crt}
{{- end }}
{{- end }}
resources: {{- toYaml $values.resources | nindent 2 }}
securityContext: {{- include "common.containerSecurity" .top | nindent 2 }}
volumeMounts:
- {name: scratch, mountPath: /backup}
- {name: script, mountPath: /etc/backups, readOnly: true}
{{- if $values.existingClaim }}
- {name: backups, mountPath: /backups}
{{- else if $values.s3.authoritySecret }}
- {name: store-tls, mountPath: /etc/store-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* The container that dumps or restores. Takes (dict "top" ROOT "verb" backup|restore). */}}
{{- define "mysql.clientContainer" -}}
name: mysql-{{ .verb }}
image: {{ include "common.image" (dict "top" .top "image" .top.Values.image) }}
imagePullPolicy: {{ .top.Values.image.pullPolicy }}
command: [/opt/sluicegate/mysql-{{ .verb }}]
env:
- {name: MYSQL_HOST, value: {{ include "common.fullname" .top }}}
- {name: MYSQL_PASSWORD_FILE, value: /etc/mysql/passwords/{{ .verb }}-password}
{{- if .top.Values.tls.enabled }}
- {name: MYSQL_SSL_CA, value: /etc/mysql/tls/ca.crt}
{{- end }}
resources: {{- toYaml .top.Values.backup.resources | nindent 2 }}
securityContext: {{- include "common.containerSecurity" .top | nindent 2 }}
volumeMounts:
- {name: scratch, mountPath: /backup}
- {name: tmp, mountPath: /tmp}
- {name: passwords, mountPath: /etc/mysql/passwords, readOnly: true}
{{- if .top.Values.tls.enabled }}
- {name: tls, mountPath: /etc/mysql/tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* The spec of a Job. Takes (dict "top" ROOT "verb" backup|restore). */}}
{{- define "mysql.backupJob" -}}
{{- $top := .top -}}
{{- $client := include "mysql.clientContainer" . -}}
{{- $store := include "mysql.storeContainer" (dict "top" $top "verb" (ternary "store" "fetch" (eq .verb "backup"))) -}}
# a restore that failed has changed the server, so it is not repeated
backoffLimit: {{ ternary 2 0 (eq .verb "backup") }}
activeDeadlineSeconds: {{ $top.Values.backup.timeoutSeconds }}
template:
  metadata:
    labels: {{- include "common.selector" $top | nindent 6 }}
      app.kubernetes.io/component: backup
      {{ include "common.clientLabel" $top }}: "true"
      {{- with $top.Values.backup.podLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "common.fullname" $top }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    securityContext: {{- include "common.podSecurity" $top | nindent 6 }}
    {{- include "common.pullSecrets" $top | nindent 4 }}
    {{- include "common.placement" $top.Values | nindent 4 }}
    initContainers:
    - {{- ternary $client $store (eq .verb "backup") | nindent 6 }}
    containers:
    - {{- ternary $store $client (eq .verb "backup") | nindent 6 }}
    volumes:
    - name: scratch
      emptyDir: {sizeLimit: {{ $top.Values.backup.scratchSize }}}
    - name: tmp
      emptyDir: {sizeLimit: 16Mi}
    - name: script
      configMap: {name: {{ include "mysql.cronJobName" (dict "top" $top "verb" "backup") }}}
    - name: passwords
      secret:
        secretName: {{ include "mysql.adminSecretName" $top }}
        defaultMode: 0440
        items:
        - {key: {{ .verb }}-password, path: {{ .verb }}-password}
    {{- if $top.Values.tls.enabled }}
    - name: tls
      secret:
        secretName: {{ include "common.tlsSecretName" $top }}
        items:
        - {key: ca.crt, path: ca.crt}
    {{- end }}
    {{- if $top.Values.backup.existingClaim }}
    - name: backups
      persistentVolumeClaim: {claimName: {{ $top.Values.backup.existingClaim }}}
    {{- else if $top.Values.backup.s3.authoritySecret }}
    - name: store-tls
      secret:
        secretName: {{ tpl $top.Values.backup.s3.authoritySecret $top }}
        items:
        - {key: ca.crt, path: ca.crt}
    {{- end }}
{{- end -}}
