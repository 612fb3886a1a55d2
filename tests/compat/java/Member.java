// Kafka's own consumer as a member of a group, told what to do a line at a time; each command is
// answered up to a ".". Topics are names separated by commas, or a pattern of RE2 in slashes.
//
//   poll     the values of the records
//   owned    the partitions that are assigned now
//   events   what the listener was told since the last time: when (ms since 1970), what, partitions
//   commit   commitSync
//   close

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Member {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", in.readLine());
        String topics = in.readLine();
        for (String line = in.readLine(); !line.isEmpty(); line = in.readLine()) {
            String[] pair = line.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        List<String> events = new ArrayList<>();
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> places) {
                note("assigned", places);
            }

            public void onPartitionsRevoked(Collection<TopicPartition> places) {
                note("revoked", places);
            }

            public void onPartitionsLost(Collection<TopicPartition> places) {
                note("lost", places);
            }

            private void note(String what, Collection<TopicPartition> places) {
                StringBuilder line = new StringBuilder();
                line.append(System.currentTimeMillis()).append(' ').append(what);
                places.forEach(place -> line.append(' ').append(place));
                events.add(line.toString());
            }
        };
        StringDeserializer strings = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, strings, strings)) {
            if (topics.startsWith("/")) {
                consumer.subscribe(
                        new SubscriptionPattern(topics.substring(1, topics.length() - 1)), listener);
            } else {
                consumer.subscribe(List.of(topics.split(",")), listener);
            }
            for (String line = in.readLine(); !line.equals("close"); line = in.readLine()) {
                switch (line) {
                    case "poll" -> {
                        for (ConsumerRecord<String, String> record :
                                consumer.poll(Duration.ofMillis(100))) {
                            System.out.println(record.value());
                        }
                    }
                    case "owned" -> {
                        for (TopicPartition place : consumer.assignment()) {
                            System.out.println(place);
                        }
                    }
                    case "events" -> {
                        events.forEach(System.out::println);
                        events.clear();
                    }
                    case "commit" -> consumer.commitSync();
                    default -> throw new IllegalArgumentException(line);
                }
                System.out.println(".");
            }
        }
        System.out.println(".");
    }
}
