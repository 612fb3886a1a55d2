// Kafka's own transactional producer: BOOTSTRAP TOPIC ID [COUNT]. Commits, aborts, commits, each
// COUNT records over two partitions, and the offset 3 of partition 0 with each commit, of the group
// ID. Then another producer with the same id fences the first. Prints how that one failed, and what
// consumers of both isolation levels read: LEVEL PARTITION OFFSET VALUE.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    static final StringSerializer OUT = new StringSerializer();
    static final StringDeserializer IN = new StringDeserializer();

    public static void main(String[] args) {
        String bootstrap = args[0], topic = args[1], id = args[2];
        int count = Integer.parseInt(args[3]);
        try (KafkaProducer<String, String> first = producer(bootstrap, id)) {
            first.beginTransaction();
            first.commitTransaction(); // nothing was written
            first.beginTransaction();
            first.abortTransaction();
            transaction(first, topic, id, "commit", count);
            transaction(first, topic, id, "abort", count);
            transaction(first, topic, id, "again", count);
            try (KafkaProducer<String, String> second = producer(bootstrap, id)) {
                try {
                    transaction(first, topic, id, "fenced", count);
                    System.out.println("not fenced");
                } catch (KafkaException e) {
                    Throwable cause = e.getCause() == null ? e : e.getCause();
                    System.out.println("fenced " + cause.getClass().getSimpleName());
                }
            }
        }
        for (String level : List.of("read_committed", "read_uncommitted")) {
            read(bootstrap, topic, id, level);
        }
    }

    static KafkaProducer<String, String> producer(String bootstrap, String id) {
        KafkaProducer<String, String> made = new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "transactional.id", id), OUT, OUT);
        made.initTransactions();
        return made;
    }

    static void transaction(
            KafkaProducer<String, String> producer, String topic, String id, String kind, int count) {
        producer.beginTransaction();
        for (int i = 0; i < count; i++) {
            producer.send(new ProducerRecord<>(topic, i % 2, null, kind + i));
        }
        producer.flush();
        if (kind.equals("abort")) {
            producer.abortTransaction();
            return;
        }
        producer.sendOffsetsToTransaction(
            Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3)),
            new ConsumerGroupMetadata(id));
        producer.commitTransaction();
    }

    static void read(String bootstrap, String topic, String group, String level) {
        List<TopicPartition> all =
            List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", bootstrap, "isolation.level", level, "group.id", group,
                "enable.auto.commit", "false"), IN, IN)) {
            consumer.assign(all);
            System.out.println("offset " + consumer.committed(Map.of(all.get(0), 0).keySet()).get(all.get(0)).offset());
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(
                        level + " " + r.partition() + " " + r.offset() + " " + r.value());
                }
            }
        }
    }
}
