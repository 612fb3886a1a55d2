import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Asks what the web UIs ask to fill their pages, as they ask it: kafka-ui (ReactiveAdminClient),
 *  AKHQ (AbstractKafkaWrapper) and Kafdrop. Argument: bootstrap; stdout: what they would show. */
public class WebUi {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> at = Map.of("bootstrap.servers", arguments[0], "client.id", "web-ui");
        Map<String, Object> shown = new TreeMap<>();
        try (Admin admin = Admin.create(at)) {
            cluster(admin, shown);
            Set<String> topics =
                    admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            topics(admin, topics, shown);
            groups(admin, shown);
            lag(admin, at, shown);
        }
        System.out.println(new ObjectMapper().writeValueAsString(shown));
    }

    /** The brokers' page, and what each of them asks first to learn what the cluster can do. */
    private static void cluster(Admin admin, Map<String, Object> shown) throws Exception {
        var cluster = admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true));
        List<Integer> ids = cluster.nodes().get().stream().map(Node::id).toList();
        shown.put("cluster", cluster.clusterId().get() != null);
        shown.put("operations", cluster.authorizedOperations().get() != null);
        var controller = String.valueOf(cluster.controller().get().id());
        var broker = new ConfigResource(ConfigResource.Type.BROKER, controller);
        shown.put("broker configs", !admin.describeConfigs(List.of(broker)).all().get().isEmpty());
        shown.put("features", admin.describeFeatures().featureMetadata().get() != null);
        shown.put("log dirs", admin.describeLogDirs(ids).allDescriptions().get().size());
        try {
            admin.describeAcls(AclBindingFilter.ANY).values().get();
            shown.put("acls", "some");
        } catch (ExecutionException e) {
            shown.put("acls", e.getCause() instanceof SecurityDisabledException ? "off" : e.getCause());
        }
    }

    private static void topics(Admin admin, Set<String> topics, Map<String, Object> shown)
            throws Exception {
        var described = admin.describeTopics(topics).allTopicNames().get();
        shown.put("topics", described.values().stream().collect(
                Collectors.toMap(TopicDescription::name, t -> t.partitions().size())));
        var resources = topics.stream()
                .map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).toList();
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        var configs = admin.describeConfigs(resources, options).all().get();
        shown.put("documented", configs.values().stream().allMatch(config ->
                config.entries().stream().allMatch(e -> e.documentation() != null && e.source() != null)));
        shown.put("reassigned", admin.listPartitionReassignments().reassignments().get().size());
        var partitions = partitions(described);
        shown.put("producers", admin.describeProducers(partitions).all().get().size());
    }

    private static void groups(Admin admin, Map<String, Object> shown) throws Exception {
        var names = admin.listConsumerGroups().all().get().stream()
                .map(ConsumerGroupListing::groupId).toList();
        var described = admin.describeConsumerGroups(names,
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all().get();
        shown.put("groups", described.values().stream().collect(
                Collectors.toMap(ConsumerGroupDescription::groupId, g -> g.groupState() + " " + g.members().size())));
    }

    /** By the admin client, as kafka-ui; and by a consumer, as AKHQ and Kafdrop. */
    private static void lag(Admin admin, Map<String, Object> at, Map<String, Object> shown)
            throws Exception {
        Map<String, Long> byAdmin = new TreeMap<>();
        Map<String, Long> byConsumer = new TreeMap<>();
        var names = admin.listConsumerGroups().all().get();
        var specs = names.stream().collect(Collectors.toMap(
                ConsumerGroupListing::groupId, g -> new ListConsumerGroupOffsetsSpec()));
        var committed = admin.listConsumerGroupOffsets(specs).all().get();
        for (var group : committed.entrySet()) {
            var places = group.getValue().keySet();
            var ends = admin.listOffsets(places.stream().collect(
                    Collectors.toMap(p -> p, p -> OffsetSpec.latest()))).all().get();
            byAdmin.put(group.getKey(), places.stream().mapToLong(
                    p -> ends.get(p).offset() - group.getValue().get(p).offset()).sum());
            var bytes = new ByteArrayDeserializer();
            try (var consumer = new KafkaConsumer<>(at, bytes, bytes)) {
                consumer.listTopics();
                consumer.beginningOffsets(places);
                var consumed = consumer.endOffsets(places);
                var single = admin.listConsumerGroupOffsets(group.getKey())
                        .partitionsToOffsetAndMetadata().get();
                byConsumer.put(group.getKey(), places.stream().mapToLong(
                        p -> consumed.get(p) - single.get(p).offset()).sum());
            }
        }
        shown.put("lag", byAdmin);
        shown.put("lag by a consumer", byConsumer);
    }

    private static List<TopicPartition> partitions(Map<String, TopicDescription> topics) {
        return topics.values().stream().flatMap(topic -> topic.partitions().stream()
                .map(p -> new TopicPartition(topic.name(), p.partition()))).toList();
    }
}
