// Kafka's own share consumer with explicit acknowledgement, told what to do a line at a time; each
// command is answered up to a ".".
//
//   poll              the values of the records, and how often each has been delivered
//   TYPE VALUE ...    acknowledge what was polled last: ACCEPT, RELEASE, REJECT or RENEW
//   commit            commitSync; the partitions whose acknowledgements failed
//   close

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", in.readLine());
        settings.put("share.acknowledgement.mode", "explicit");
        String topic = in.readLine();
        for (String line = in.readLine(); !line.isEmpty(); line = in.readLine()) {
            String[] pair = line.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        StringDeserializer strings = new StringDeserializer();
        Map<String, ConsumerRecord<String, String>> polled = new HashMap<>();
        try (KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(settings, strings, strings)) {
            consumer.subscribe(List.of(topic));
            for (String line = in.readLine(); !line.equals("close"); line = in.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "poll" -> {
                        for (ConsumerRecord<String, String> record :
                                consumer.poll(Duration.ofMillis(200))) {
                            polled.put(record.value(), record);
                            System.out.println(
                                    record.value() + " " + record.deliveryCount().orElse((short) 0));
                        }
                    }
                    case "commit" -> {
                        Map<TopicIdPartition, Optional<KafkaException>> done = consumer.commitSync();
                        done.forEach((place, error) -> error.ifPresent(
                                e -> System.out.println(place + ": " + e)));
                    }
                    default -> {
                        AcknowledgeType type = AcknowledgeType.valueOf(words[0]);
                        for (int at = 1; at < words.length; at++) {
                            consumer.acknowledge(polled.get(words[at]), type);
                        }
                    }
                }
                System.out.println(".");
            }
        }
        System.out.println(".");
    }
}
