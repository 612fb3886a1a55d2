import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A job of tests/support/round_trip.py for Kafka's own client. */
public class RoundTrip {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode job = JSON.readTree(System.in);
        ObjectNode answer = JSON.createObjectNode();
        Map<String, Object> settings = Map.of("bootstrap.servers", job.get("bootstrap").asText());
        var deserializer = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, deserializer, deserializer)) {
            for (JsonNode topic : job.get("topics")) {
                if (topic.get("produce").asBoolean()) {
                    produce(job, topic);
                }
                String name = topic.get("name").asText();
                consume(consumer, job, name, answer.putArray(name));
            }
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static void produce(JsonNode job, JsonNode topic) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", job.get("bootstrap").asText(),
                "compression.type", topic.get("codec").asText(),
                "linger.ms", 20);
        var serializer = new ByteArraySerializer();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, serializer, serializer)) {
            for (JsonNode row : job.get("rows")) {
                var record = new ProducerRecord<>(
                        topic.get("name").asText(),
                        row.get("partition").asInt(),
                        row.get("timestamp").asLong(),
                        row.get("key").binaryValue(),
                        row.get("value").binaryValue());
                for (JsonNode header : row.get("headers")) {
                    record.headers().add(header.get(0).asText(), header.get(1).binaryValue());
                }
                sent.add(producer.send(record));
            }
        }
        for (int i = 0; i < sent.size(); i++) {
            long offset = job.get("rows").get(i).get("offset").asLong();
            if (sent.get(i).get().offset() != offset) {
                throw new IllegalStateException("row " + i + " went to " + sent.get(i).get());
            }
        }
    }

    private static void consume(
            KafkaConsumer<byte[], byte[]> consumer, JsonNode job, String topic, ArrayNode answer) {
        List<TopicPartition> places = new ArrayList<>();
        for (int i = 0; i < job.get("partitions").asInt(); i++) {
            places.add(new TopicPartition(topic, i));
        }
        long start = job.get("start").asLong();
        consumer.assign(places);
        places.forEach(place -> consumer.seek(place, start));
        long count = 0;
        for (long end : consumer.endOffsets(places).values()) {
            count += end - start;
        }
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        while (found.size() < count) {
            var polled = consumer.poll(Duration.ofSeconds(20));
            if (polled.isEmpty()) {
                throw new IllegalStateException("nothing after " + found.size() + " records");
            }
            polled.forEach(found::add);
        }
        found.sort(Comparator.<ConsumerRecord<byte[], byte[]>>comparingInt(ConsumerRecord::partition)
                .thenComparingLong(ConsumerRecord::offset));
        found.forEach(record -> write(record, answer.addObject()));
    }

    private static void write(ConsumerRecord<byte[], byte[]> record, ObjectNode row) {
        row.put("partition", record.partition());
        row.put("offset", record.offset());
        row.put("timestamp", record.timestamp());
        row.put("key", record.key());
        row.put("value", record.value());
        ArrayNode headers = row.putArray("headers");
        record.headers().forEach(header -> headers.addArray()
                .add(header.key())
                .add(Base64.getEncoder().encodeToString(header.value())));
    }
}
