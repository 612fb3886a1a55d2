import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A job of tests/support/copier.py for Kafka's own client: it copies until it is killed. */
public class Copy {
    public static void main(String[] arguments) throws Exception {
        JsonNode job = new ObjectMapper().readTree(arguments[0]);
        while (true) {
            try {
                copy(job);
            } catch (KafkaException e) {
                System.out.println(System.currentTimeMillis() + " " + e);
                Thread.sleep(100);
            }
        }
    }

    private static void copy(JsonNode job) {
        String bootstrap = job.get("bootstrap").asText();
        Map<String, Object> producing = Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", job.get("id").asText(),
                "transaction.timeout.ms", 3_000,
                "delivery.timeout.ms", 10_000,
                "request.timeout.ms", 3_000,
                "max.block.ms", 10_000);
        Map<String, Object> consuming = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", job.get("group").asText(),
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "session.timeout.ms", 3_000,
                "heartbeat.interval.ms", 200,
                "max.poll.records", 50);
        var serializer = new ByteArraySerializer();
        var deserializer = new ByteArrayDeserializer();
        try (var producer = new KafkaProducer<>(producing, serializer, serializer)) {
            producer.initTransactions();
            try (var consumer = new KafkaConsumer<>(consuming, deserializer, deserializer)) {
                consumer.subscribe(List.of(job.get("source").asText()));
                while (true) {
                    var found = consumer.poll(Duration.ofMillis(200));
                    if (!found.isEmpty()) {
                        one(job, producer, consumer, found);
                    }
                }
            }
        }
    }

    private static void one(
            JsonNode job,
            KafkaProducer<byte[], byte[]> producer,
            KafkaConsumer<byte[], byte[]> consumer,
            ConsumerRecords<byte[], byte[]> found) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : found) {
            producer.send(new ProducerRecord<>(
                    job.get("target").asText(), record.partition(), null, record.value()));
            var place = new TopicPartition(record.topic(), record.partition());
            ends.put(place, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
        producer.commitTransaction();
    }
}
