import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of the topic "lines" into the topic "counts", with exactly_once_v2. It has no cache,
 * so every count of every word is written. Arguments: bootstrap address, folder of the state.
 */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        var builder = new StreamsBuilder();
        builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.as("store"))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to("counts", Produced.with(Serdes.String(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), settings(arguments[0], arguments[1]));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println(System.currentTimeMillis() + " " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        Thread.sleep(Long.MAX_VALUE);
    }

    private static Properties settings(String bootstrap, String folder) {
        var settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("application.id", "word-count");
        settings.put("state.dir", folder);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", 100);
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("replication.factor", 1);
        settings.put("num.stream.threads", 2);
        settings.put("main.consumer.auto.offset.reset", "earliest");
        settings.put("main.consumer.session.timeout.ms", 3_000);
        settings.put("main.consumer.heartbeat.interval.ms", 200);
        settings.put("producer.transaction.timeout.ms", 5_000);
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        return settings;
    }
}
