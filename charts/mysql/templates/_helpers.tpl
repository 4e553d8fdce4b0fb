{{- define "mysql.secretName" -}}
{{- .Values.auth.existingSecret | default (include "common.fullname" .) -}}
{{- end -}}

{{/* The Secret with the passwords of root and of backups, which no job reads. */}}
{{- define "mysql.adminSecretName" -}}
{{- .Values.auth.adminSecret | default .Values.auth.existingSecret | default (printf "%s-admin" (include "common.fullname" .)) -}}
{{- end -}}

{{/* Settings that exactly-once, the image and the pod depend on. */}}
{{- define "mysql.ownSettings" -}}
bind-address: "*"
port: 3306
datadir: /var/lib/mysql/data
socket: /tmp/mysql.sock
pid-file: /tmp/mysqld.pid
tmpdir: /tmp
mysqlx: "OFF"
# no SQL reads or writes files: the read-only root file system has no folder for them
secure_file_priv: "NULL"
skip-name-resolve: "ON"
sync_binlog: 1
innodb_flush_log_at_trx_commit: 1
innodb_doublewrite: "ON"
log_bin: binlog
sql_mode: STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION,ONLY_FULL_GROUP_BY
innodb_buffer_pool_size: {{ .Values.bufferPool }}
max_connections: {{ .Values.maxConnections }}
{{- if .Values.tls.enabled }}
ssl_ca: /etc/mysql/tls/ca.crt
ssl_cert: /etc/mysql/tls/tls.crt
ssl_key: /etc/mysql/tls/tls.key
require_secure_transport: "ON"
tls_version: TLSv1.2,TLSv1.3
{{- end }}
{{- end -}}

{{/* The one name of an option, which the server also accepts with '-' and with these prefixes. */}}
{{- define "mysql.option" -}}
{{- regexReplaceAll "^(loose_|skip_|disable_|enable_|maximum_)+" (replace "-" "_" . | lower) "" -}}
{{- end -}}

{{/* All settings of the server; values may change those that are only defaults. */}}
{{- define "mysql.settings" -}}
{{- $own := include "mysql.ownSettings" . | fromYaml -}}
{{- range $key, $_ := .Values.config -}}
{{- $plain := include "mysql.option" $key -}}
{{- if or (has $plain (list "grant_tables" "init_file" "datadir" "initialize" "initialize_insecure" "innodb_fast_shutdown" "innodb_force_recovery" "binlog_error_action")) -}}
{{- fail (printf "mysql: config.%s would weaken durability or access control, or is set by the image. Remove it from config." $key) -}}
{{- end -}}
{{- if and (eq $plain "innodb_flush_method") (not (has (toString (get $.Values.config $key) | lower) (list "fsync" "o_dsync" "o_direct"))) -}}
{{- fail (printf "mysql: config.%s: %v may lose acknowledged commits in a crash. Use fsync, O_DSYNC or O_DIRECT." $key (get $.Values.config $key)) -}}
{{- end -}}
{{- range $mine, $_ := $own -}}
{{- if eq $plain (include "mysql.option" $mine) -}}
{{- fail (printf "mysql: config.%s is set by the chart: durability or the pod depends on it. Remove it from config%s." $key (get (dict "innodb_buffer_pool_size" "; use bufferPool" "max_connections" "; use maxConnections") $plain)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $defaults := dict "character_set_server" "utf8mb4" "collation_server" "utf8mb4_0900_ai_ci" "max_allowed_packet" "64M" "binlog_expire_logs_seconds" 259200 "transaction_isolation" "REPEATABLE-READ" "performance_schema" "OFF" "host_cache_size" 0 -}}
{{- $more := dict -}}
{{- range $key, $value := .Values.config -}}{{- $_ := set $more (replace "-" "_" $key) $value -}}{{- end -}}
{{- merge $own $more $defaults | toYaml -}}
{{- end -}}
