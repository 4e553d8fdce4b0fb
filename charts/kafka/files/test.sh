. /etc/kafka/scripts/client.sh
topic=helm-test-$(date +%s)
tool org.apache.kafka.tools.TopicCommand --create --topic "$topic"
echo "a record of $topic" | tool org.apache.kafka.tools.ConsoleProducer --topic "$topic" --command-property acks=all
found=$(tool org.apache.kafka.tools.consumer.ConsoleConsumer --topic "$topic" --from-beginning --max-messages 1 --timeout-ms 60000)
tool org.apache.kafka.tools.TopicCommand --delete --topic "$topic"
if [ "$found" != "a record of $topic" ]; then
  echo "a record was produced to $topic and this was read: '$found'" >&2
  exit 1
fi
echo "a record was produced and read"
