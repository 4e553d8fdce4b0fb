# Writes /tmp/client.properties: the login of the brokers' own user. Passwords are in files, so that no list of
# processes and no environment shows them.
umask 077
{
  cat /etc/kafka/scripts/client.properties
  if [ -r /etc/kafka/scram/broker ]; then
    printf 'sasl.mechanism=SCRAM-SHA-512\n'
    printf 'sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="%s";\n' \
      "$(cat /etc/kafka/scram/broker)"
  fi
} > /tmp/client.properties

# runs a tool of Kafka as that user: tool CLASS ARGUMENTS
tool() {
  class=$1
  shift
  timeout 120 /opt/sluicegate/kafka-tool "$class" --bootstrap-server "$BROKERS" --command-config /tmp/client.properties "$@"
}
