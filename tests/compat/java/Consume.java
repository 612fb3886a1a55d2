// Kafka's own consumer, told what to do a line at a time; each command is answered up to a ".".
//
//   assign P,P,…    begin at offset 0 where a partition is new
//   pause P,P,…     resume P,P,…     seek P OFFSET
//   at P TIMESTAMP  the offset of the first record that is as late, if there is one
//   poll            one line "PARTITION OFFSET VALUE" for each record, "out of range" or
//                   "truncated OFFSET": the first offset that differs
//   commit P N      N times commitAsync, each followed by committed(): the offsets it shows
//   close

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.LogTruncationException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Consume {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", in.readLine());
        String topic = in.readLine();
        for (String line = in.readLine(); !line.isEmpty(); line = in.readLine()) {
            String[] pair = line.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        StringDeserializer strings = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, strings, strings)) {
            for (String line = in.readLine(); !line.equals("close"); line = in.readLine()) {
                obey(consumer, topic, line.split(" "));
                System.out.println(".");
            }
        }
        System.out.println(".");
    }

    static void obey(KafkaConsumer<String, String> consumer, String topic, String[] words) {
        List<TopicPartition> partitions = new ArrayList<>();
        if (words.length > 1) {
            for (String number : words[1].split(",")) {
                partitions.add(new TopicPartition(topic, Integer.parseInt(number)));
            }
        }
        switch (words[0]) {
            case "assign" -> {
                Set<TopicPartition> fresh = new HashSet<>(partitions);
                fresh.removeAll(consumer.assignment());
                consumer.assign(partitions);
                fresh.forEach(partition -> consumer.seek(partition, 0));
            }
            case "pause" -> consumer.pause(partitions);
            case "resume" -> consumer.resume(partitions);
            case "seek" -> consumer.seek(partitions.get(0), Long.parseLong(words[2]));
            case "at" -> {
                Map<TopicPartition, Long> asked =
                        Map.of(partitions.get(0), Long.parseLong(words[2]));
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(asked).get(partitions.get(0));
                if (found != null) {
                    System.out.println(found.offset());
                }
            }
            case "commit" -> {
                TopicPartition place = partitions.get(0);
                for (long offset = 1; offset <= Long.parseLong(words[2]); offset++) {
                    consumer.commitAsync(Map.of(place, new OffsetAndMetadata(offset)), null);
                    OffsetAndMetadata found = consumer.committed(Set.of(place)).get(place);
                    System.out.println(found == null ? -1 : found.offset());
                }
            }
            case "poll" -> {
                try {
                    for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(100))) {
                        System.out.println(r.partition() + " " + r.offset() + " " + r.value());
                    }
                } catch (LogTruncationException e) {
                    e.divergentOffsets().values().forEach(found ->
                            System.out.println("truncated " + found.offset()));
                } catch (OffsetOutOfRangeException e) {
                    System.out.println("out of range");
                }
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
