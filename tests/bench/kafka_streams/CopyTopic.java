import java.io.FileInputStream;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/**
 * Copies a topic with Kafka Streams and ends when the application has committed all of its input.
 *
 * <p>Arguments: a properties file with the application's settings, the source topic, the sink topic.
 */
public final class CopyTopic {
    private static final long POLL_MS = 200;

    private CopyTopic() {}

    /** Runs the application. */
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        StreamsBuilder topology = new StreamsBuilder();
        topology.stream(arguments[1]).to(arguments[2]);
        CountDownLatch failed = new CountDownLatch(1);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", settings.get("bootstrap.servers")));
                KafkaStreams streams = new KafkaStreams(topology.build(), settings)) {
            Map<TopicPartition, Long> ends = ends(admin, arguments[1]);
            streams.setUncaughtExceptionHandler(
                    error -> {
                        error.printStackTrace();
                        failed.countDown();
                        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                    });
            streams.start();
            while (!hasCommitted(admin, settings.getProperty("application.id"), ends)) {
                if (failed.getCount() == 0) {
                    System.exit(1);
                }
                Thread.sleep(POLL_MS);
            }
        }
    }

    private static Map<TopicPartition, Long> ends(Admin admin, String topic) throws Exception {
        List<TopicPartition> partitions =
                admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().stream()
                        .map(partition -> new TopicPartition(topic, partition.partition()))
                        .toList();
        return admin
                .listOffsets(partitions.stream().collect(Collectors.toMap(one -> one, one -> OffsetSpec.latest())))
                .all()
                .get()
                .entrySet()
                .stream()
                .filter(end -> end.getValue().offset() > 0)
                .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset()));
    }

    private static boolean hasCommitted(Admin admin, String application, Map<TopicPartition, Long> ends)
            throws Exception {
        Map<TopicPartition, OffsetAndMetadata> committed =
                admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
        return ends.entrySet().stream()
                .allMatch(
                        end -> {
                            OffsetAndMetadata offset = committed.get(end.getKey());
                            return offset != null && offset.offset() >= end.getValue();
                        });
    }
}
