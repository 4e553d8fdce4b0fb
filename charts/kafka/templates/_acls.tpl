{{/* The rights of a job's user, as Strimzi writes them. Takes a list of topics; one that ends with `*` is a prefix.
docs/sinks/kafka.md says what needs each of them; a test runs a job on a broker that grants nothing else. */}}
{{- define "kafka.acls" -}}
{{- range . }}
- resource: {type: topic, {{ include "kafka.pattern" . }}}
  operations: [Create, Describe, DescribeConfigs, Read, Write]
{{- end }}
- resource: {type: topic, {{ include "kafka.pattern" "sluicegate.markers" }}}
  operations: [Create, Describe, DescribeConfigs, Read, Write]
- resource: {type: group, {{ include "kafka.pattern" "sluicegate.*" }}}
  operations: [Describe, Read]
- resource: {type: transactionalId, {{ include "kafka.pattern" "sluicegate.*" }}}
  operations: [Describe, Write]
- resource: {type: cluster}
  operations: [DescribeConfigs]
{{- end -}}

{{- define "kafka.pattern" -}}
{{- if and (hasSuffix "*" .) (ne . "*") -}}
name: {{ trimSuffix "*" . | quote }}, patternType: prefix
{{- else -}}
name: {{ . | quote }}, patternType: literal
{{- end -}}
{{- end -}}

{{/* A right as setup.sh reads it: TYPE PATTERN NAME OPERATION,... in the words that Kafka's tools print. */}}
{{- define "kafka.aclLine" -}}
{{- $pattern := ternary "PREFIXED" "LITERAL" (eq (.resource.patternType | default "literal") "prefix") -}}
{{- $operations := list -}}
{{- range .operations }}{{ $operations = append $operations (snakecase . | upper) }}{{ end -}}
{{ snakecase .resource.type | upper }} {{ $pattern }} {{ .resource.name | default "kafka-cluster" }} {{ join "," $operations }}
{{- end -}}
