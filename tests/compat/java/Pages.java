import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** The calls that web UIs for Kafka make of Java's AdminClient to fill their pages.
 *  Arguments: bootstrap, topic. Stdout: {call: what it gave, or the error's class}. */
public class Pages {
    private static final Map<String, Object> found = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        try (var admin = Admin.create(properties)) {
            var all = new DescribeClusterOptions().includeAuthorizedOperations(true);
            var cluster = admin.describeCluster(all);
            call("cluster", () -> cluster.clusterId().get());
            call("nodes", () -> cluster.nodes().get().toString());
            call("cluster operations", () -> cluster.authorizedOperations().get().size());
            call("features", () -> admin.describeFeatures().featureMetadata().get().finalizedFeatures().size());
            call("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
            configs(admin, "broker", ConfigResource.Type.BROKER, "0");
            call("topics", () -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
            var names = TopicCollection.ofTopicNames(List.of(topic));
            var described = admin.describeTopics(names, new DescribeTopicsOptions()
                    .includeAuthorizedOperations(true).partitionSizeLimitPerResponse(2))
                    .topicNameValues().get(topic);
            call("partitions", () -> described.get().partitions().size());
            call("id", () -> described.get().topicId().toString());
            call("topic operations", () -> described.get().authorizedOperations().size());
            configs(admin, "topic", ConfigResource.Type.TOPIC, topic);
            call("sizes", () -> admin.describeLogDirs(List.of(0)).allDescriptions().get().get(0).values()
                    .iterator().next().replicaInfos().size());
            call("total", () -> admin.describeLogDirs(List.of(0)).allDescriptions().get().get(0).values()
                    .iterator().next().totalBytes().isPresent());
            var zero = new TopicPartition(topic, 0);
            call("end", () -> admin.listOffsets(Map.of(zero, OffsetSpec.latest()))
                    .partitionResult(zero).get().offset());
            call("groups", () -> admin.listGroups().all().get().size());
            call("offsets", () -> admin.listConsumerGroupOffsets("readers")
                    .partitionsToOffsetAndMetadata().get().get(zero).offset());
            call("members", () -> admin.describeConsumerGroups(List.of("readers")).all().get()
                    .get("readers").members().size());
            call("reassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
            call("producers", () -> admin.describeProducers(List.of(zero)).partitionResult(zero).get()
                    .activeProducers().size());
            call("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
            call("users", () -> admin.describeUserScramCredentials().all().get().size());
            call("transactions", () -> admin.listTransactions().all().get().size());
            call("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
            call("tokens", () -> admin.describeDelegationToken().delegationTokens().get().size());
        }
        System.out.println(new ObjectMapper().writeValueAsString(found));
    }

    private static void configs(Admin admin, String name, ConfigResource.Type type, String of) {
        var resource = new ConfigResource(type, of);
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        KafkaFuture<Config> future = admin.describeConfigs(List.of(resource), options).values().get(resource);
        call(name + " configs", () -> {
            var entries = new LinkedHashMap<String, List<String>>();
            for (ConfigEntry entry : future.get().entries()) {
                entries.put(entry.name(), List.of(String.valueOf(entry.value()), entry.source().name(),
                        entry.type().name(), String.valueOf(entry.isReadOnly())));
                if (entry.documentation() == null) throw new IllegalStateException(entry.name());
            }
            return entries;
        });
    }

    private static void call(String name, Callable<Object> work) {
        try {
            found.put(name, work.call());
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            found.put(name, cause.getClass().getSimpleName());
        }
    }
}
