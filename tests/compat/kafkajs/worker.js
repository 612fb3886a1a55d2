// A member of a group that others of other languages are in, too: they share the protocol "range".
// Says "partition offset" of each record; commits behind it. At SIGTERM it leaves.
const { Kafka, logLevel, AssignerProtocol } = require("kafkajs");

// As in all other clients: per topic, consecutive partitions to members in the order of their ids.
const range = ({ cluster }) => ({
  name: "range",
  version: 0,
  async assign({ members, topics }) {
    const ids = members.map(({ memberId }) => memberId).sort();
    const given = Object.fromEntries(ids.map((id) => [id, {}]));
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map((p) => p.partitionId).sort();
      ids.forEach((id, at) => {
        const share = (n) => Math.floor((n * partitions.length) / ids.length);
        given[id][topic] = partitions.slice(share(at), share(at + 1));
      });
    }
    return ids.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({
        version: 0, assignment: given[memberId], userData: Buffer.alloc(0),
      }),
    }));
  },
  protocol: ({ topics }) => ({
    name: "range",
    metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) }),
  }),
});

async function main({ bootstrap, topic, group }) {
  const kafka = new Kafka({ clientId: "compat", brokers: [bootstrap], logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({
    groupId: group, sessionTimeout: 6000, heartbeatInterval: 200, partitionAssigners: [range],
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  process.on("SIGTERM", () => consumer.disconnect().then(() => process.exit(0)));
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ partition, message }) => console.log(`${partition} ${message.offset}`),
  });
}

main(JSON.parse(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
