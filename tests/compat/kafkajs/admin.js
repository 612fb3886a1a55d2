// What kafkajs's admin client does with topics, configs and the cluster; prints what it was told.
const { Kafka, logLevel, ConfigResourceTypes } = require("kafkajs");
const { readFileSync } = require("node:fs");

async function main({ bootstrap, topic }) {
  const kafka = new Kafka({ clientId: "compat", brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
  const error = (work) => work.then(() => "", (e) => (e.errors ? e.errors[0] : e).type);
  const configs = async () => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: true,
      resources: [resource],
    });
    return Object.fromEntries(resources[0].configEntries.map((e) => [e.configName, e]));
  };
  const answer = { created: await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] }) };
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
  const fewer = { topicPartitions: [{ topic, count: 2 }] };
  answer.fewer = await error(admin.createPartitions(fewer));
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  answer.partitions = topics[0].partitions.length;
  const configEntries = [{ name: "retention.ms", value: "1234" }];
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] });
  answer.configs = await configs();
  const bad = [{ name: "retention.ms", value: "soon" }];
  answer.bad = await error(
    admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: bad }] }),
  );
  answer.cluster = await admin.describeCluster();
  answer.reassignments = await admin.listPartitionReassignments({});
  answer.acls = await error(
    admin.describeAcls({ resourceType: 1, resourcePatternType: 1, operation: 1, permissionType: 1 }),
  );
  await admin.deleteTopics({ topics: [topic] });
  answer.deleted = !(await admin.listTopics()).includes(topic);
  await admin.disconnect();
  console.log(JSON.stringify(answer));
}

main(JSON.parse(readFileSync(0))).catch((error) => {
  console.error(error);
  process.exit(1);
});
