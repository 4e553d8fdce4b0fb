{{- define "kafka.scramSecret" -}}
{{- .Values.scram.existingSecret | default (printf "%s-scram" (include "common.fullname" .)) -}}
{{- end -}}

{{/* The security protocol of the listeners for clients and between brokers. */}}
{{- define "kafka.protocol" -}}
{{- if .Values.scram.enabled -}}
{{ ternary "SASL_SSL" "SASL_PLAINTEXT" .Values.tls.enabled }}
{{- else -}}
{{ ternary "SSL" "PLAINTEXT" .Values.tls.enabled }}
{{- end -}}
{{- end -}}

{{/* The ConfigMap of the settings, by the number of nodes: an upgrade that changes it is refused at the StatefulSet, and
must not have changed what the running nodes read when they restart. */}}
{{- define "kafka.configName" -}}
{{ include "common.fullname" . }}-{{ .Values.replicas }}-nodes
{{- end -}}

{{/* The cluster id: 22 characters of base64, the last without spare bits; the same at each rendering. Empty: the only
node draws one when it formats its volume. A broker with a new volume must have a new id: a job takes a marker that is
gone for one that has expired if the cluster is the one that it knows. */}}
{{- define "kafka.clusterId" -}}
{{- if .Values.clusterId -}}
{{ .Values.clusterId }}
{{- else if gt (int .Values.replicas) 1 -}}
{{- $drawn := printf "%s/%s" .Release.Namespace (include "common.fullname" .) | sha256sum | trunc 20 -}}
S{{ $drawn }}A
{{- end -}}
{{- end -}}

{{/* The host of a node, by its number or by a placeholder for its pod's name. */}}
{{- define "kafka.host" -}}
{{ .pod }}.{{ include "common.fullname" .top }}-headless.{{ .top.Release.Namespace }}.svc
{{- end -}}

{{/* Settings that values cannot change, of bundled and Strimzi's brokers. */}}
{{- define "kafka.durability" -}}
unclean.leader.election.enable: false
# the maximum: markers are group offsets, and one that expires while an epoch is decided and not
# applied stops the job
offsets.retention.minutes: "2147483647"
{{- end -}}

{{/* Settings that values cannot change: addresses, durability and the image depend on them. */}}
{{- define "kafka.ownSettings" -}}
{{- $protocol := include "kafka.protocol" . -}}
{{- $self := include "kafka.host" (dict "top" . "pod" "@POD_NAME@") -}}
{{- $voters := list -}}
{{- range $i := until (int .Values.replicas) -}}
{{- $pod := printf "%s-%d" (include "common.fullname" $) $i -}}
{{- $voters = append $voters (printf "%d@%s:9093" $i (include "kafka.host" (dict "top" $ "pod" $pod))) -}}
{{- end -}}
process.roles: broker,controller
node.id: "@NODE_ID@"
controller.quorum.voters: {{ join "," $voters }}
listeners: CLIENT://:9092,CONTROLLER://:9093,INTERNAL://:9094
advertised.listeners: CLIENT://{{ $self }}:9092,INTERNAL://{{ $self }}:9094
listener.security.protocol.map: CLIENT:{{ $protocol }},CONTROLLER:{{ ternary "SSL" "PLAINTEXT" .Values.tls.enabled }},INTERNAL:{{ $protocol }}
controller.listener.names: CONTROLLER
inter.broker.listener.name: INTERNAL
# a folder in the volume: Kafka takes every other folder at its level for a partition
log.dirs: /var/lib/kafka/data
{{ include "kafka.durability" . }}
{{- if eq (int .Values.replicas) 1 }}
# no other node has what this one acknowledged: each append is on disk before the reply, also those
# of __transaction_state and __consumer_offsets
log.flush.interval.messages: 1
{{- end }}
{{- if or .Values.tls.enabled .Values.scram.enabled }}
config.providers: dir
config.providers.dir.class: org.apache.kafka.common.config.provider.DirectoryConfigProvider
{{- end }}
{{- if .Values.tls.enabled }}
# Kafka trims values, but its PEM parser needs a newline after the last line (DefaultSslEngineFactory):
# so a newline follows, and then a character that is not white space
ssl.keystore.type: PEM
ssl.keystore.key: ${dir:/etc/kafka/tls:tls.key}\n#
ssl.keystore.certificate.chain: ${dir:/etc/kafka/tls:tls.crt}\n#
ssl.truststore.type: PEM
ssl.truststore.certificates: ${dir:/etc/kafka/tls:ca.crt}\n#
# nodes authenticate to each other by certificate; controllers have no other authentication
listener.name.controller.ssl.client.auth: required
listener.name.internal.ssl.client.auth: required
{{- end }}
{{- if .Values.scram.enabled }}
authorizer.class.name: org.apache.kafka.metadata.authorizer.StandardAuthorizer
{{- if .Values.tls.enabled }}
# controllers have no login but their certificate: a holder of one of this CA is a broker at port 9093
listener.name.controller.ssl.principal.mapping.rules: RULE:^.*$/broker/
super.users: User:broker
{{- else }}
# controllers have no login: port 9093 is protected by the NetworkPolicy alone
super.users: User:broker;User:ANONYMOUS
{{- end }}
sasl.enabled.mechanisms: SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol: SCRAM-SHA-512
listener.name.client.scram-sha-512.sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.internal.scram-sha-512.sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="${dir:/etc/kafka/scram:broker}";
{{- end }}
{{- end -}}

{{/* Defaults that values may change: one of three nodes may be lost without losing a record. Takes the number of nodes. */}}
{{- define "kafka.defaults" -}}
{{- $copies := min 3 (int .) -}}
{{- $least := ternary 2 1 (ge (int $copies) 3) -}}
default.replication.factor: {{ $copies }}
min.insync.replicas: {{ $least }}
offsets.topic.replication.factor: {{ $copies }}
transaction.state.log.replication.factor: {{ $copies }}
transaction.state.log.min.isr: {{ $least }}
share.coordinator.state.topic.replication.factor: {{ $copies }}
share.coordinator.state.topic.min.isr: {{ $least }}
num.partitions: 1
auto.create.topics.enable: false
transaction.max.timeout.ms: 900000
group.initial.rebalance.delay.ms: 0
log.retention.hours: 168
{{- if eq (int .) 1 }}
# the successor of the only broker waits this long to register, and so do all clients
broker.session.timeout.ms: 4000
broker.heartbeat.interval.ms: 1000
{{- end }}
{{- end -}}

{{- define "kafka.settings" -}}
{{- $own := include "kafka.ownSettings" . | fromYaml -}}
{{- range $key, $_ := .Values.config -}}
{{- if hasKey $own $key -}}
{{- fail (printf "kafka: config.%s is set by the chart: addresses, durability or the image depend on it. Remove it from config." $key) -}}
{{- end -}}
{{- if gt (int (get (dict "default.replication.factor" 1 "offsets.topic.replication.factor" 1 "transaction.state.log.replication.factor" 1) $key)) 0 -}}
{{- include "kafka.checkCopies" (dict "top" $ "what" (printf "config.%s" $key) "copies" (get $.Values.config $key)) -}}
{{- end -}}
{{- end -}}
{{- merge $own .Values.config (include "kafka.defaults" .Values.replicas | fromYaml) | toYaml -}}
{{- end -}}

{{- define "kafka.checkCopies" -}}
{{- if gt (int .copies) (int .top.Values.replicas) -}}
{{- fail (printf "kafka: %s is %d, but there are %d nodes: no topic could be created. Lower it, or raise replicas." .what (int .copies) (int .top.Values.replicas)) -}}
{{- end -}}
{{- end -}}

{{/* Parts of the pods that are clients: the Job and `helm test`. */}}
{{- define "kafka.clientPod" -}}
restartPolicy: {{ .restart }}
serviceAccountName: {{ include "common.fullname" .top }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- include "common.podSecurity" .top | nindent 2 }}
{{- include "common.pullSecrets" .top }}
{{- include "common.scheduling" (dict "top" .top "component" .name) }}
containers:
- name: {{ .name }}
  image: {{ include "common.image" (dict "top" .top "image" .top.Values.image) }}
  imagePullPolicy: {{ .top.Values.image.pullPolicy }}
  command: [/bin/sh, -eu, /etc/kafka/scripts/{{ .name }}.sh]
  env:
  - {name: BROKERS, value: "{{ include "common.fullname" .top }}:9092"}
  - {name: KAFKA_TOOL_HEAP_OPTS, value: -Xmx128m}
  resources:
    requests: {cpu: 50m, memory: 192Mi}
    limits: {memory: 512Mi}
  securityContext: {{- include "common.containerSecurity" .top | nindent 4 }}
  volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: scripts, mountPath: /etc/kafka/scripts, readOnly: true}
  {{- if .top.Values.tls.enabled }}
  - {name: tls, mountPath: /etc/kafka/tls, readOnly: true}
  {{- end }}
  {{- if .top.Values.scram.enabled }}
  - {name: scram, mountPath: /etc/kafka/scram, readOnly: true}
  {{- end }}
volumes:
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: scripts
  configMap: {name: {{ include "common.fullname" .top }}-scripts}
{{- if .top.Values.scram.enabled }}
- name: scram
  secret:
    secretName: {{ include "kafka.scramSecret" .top }}
    defaultMode: 0440
    items:
    {{- range prepend .users "broker" }}
    - {key: {{ . }}, path: {{ . }}}
    {{- end }}
{{- end }}
{{- if .top.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "common.tlsSecretName" .top }}
    # the CA certificate, not the key
    items:
    - {key: ca.crt, path: ca.crt}
{{- end }}
{{- end -}}

{{/* The Secret for a job's driver, as {"all": LIST}: the clients' settings as librdkafka names them, and the CA. */}}
{{- define "kafka.clientSecret" -}}
{{- $all := list -}}
{{- if or .Values.scram.enabled .Values.tls.enabled -}}
{{- $lines := list (printf "security.protocol=%s" (include "kafka.protocol" .)) -}}
{{- $text := dict -}}
{{- if .Values.scram.enabled -}}
{{- $user := first .Values.scram.users -}}
{{- $password := printf "sasl.password=${%s/%s}" (include "kafka.scramSecret" .) $user -}}
{{- $lines = concat $lines (list "sasl.mechanism=SCRAM-SHA-512" (printf "sasl.username=%s" $user) $password) -}}
{{- end -}}
{{- if .Values.tls.enabled -}}
{{- $lines = append $lines "ssl.ca.location=/etc/kafka-client/ca.crt" -}}
{{- $_ := set $text "ca.crt" (printf "${%s/ca.crt}" (include "common.tlsSecretName" .)) -}}
{{- end -}}
{{- $_ := set $text "kafka.properties" (printf "%s\n" (join "\n" $lines)) -}}
{{- $all = list (dict "name" (printf "%s-client" (include "common.fullname" .)) "text" $text) -}}
{{- end -}}
{{- dict "all" $all | toJson -}}
{{- end -}}
