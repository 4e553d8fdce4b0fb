module sluicegate.dev/images/collector

go 1.26

require (
	github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v0.157.0
	github.com/open-telemetry/opentelemetry-collector-contrib/extension/healthcheckextension v0.157.0
	go.opentelemetry.io/collector/component v1.63.0
	go.opentelemetry.io/collector/confmap v1.63.0
	go.opentelemetry.io/collector/confmap/provider/envprovider v1.63.0
	go.opentelemetry.io/collector/confmap/provider/fileprovider v1.63.0
	go.opentelemetry.io/collector/exporter v1.63.0
	go.opentelemetry.io/collector/exporter/debugexporter v0.157.0
	go.opentelemetry.io/collector/exporter/otlpexporter v0.157.0
	go.opentelemetry.io/collector/exporter/otlphttpexporter v0.157.0
	go.opentelemetry.io/collector/extension v1.63.0
	go.opentelemetry.io/collector/otelcol v0.157.0
	go.opentelemetry.io/collector/processor v1.63.0
	go.opentelemetry.io/collector/processor/batchprocessor v0.157.0
	go.opentelemetry.io/collector/processor/memorylimiterprocessor v0.157.0
	go.opentelemetry.io/collector/receiver v1.63.0
	go.opentelemetry.io/collector/receiver/otlpreceiver v0.157.0
	go.opentelemetry.io/collector/service v0.157.0
)
