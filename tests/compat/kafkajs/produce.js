// usage: node produce.js BOOTSTRAP TOPIC COUNT: create, produce, ask for offsets, list; prints JSON.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

async function main(bootstrap, topic, count) {
  const kafka = new Kafka({ clientId: "compat", brokers: [bootstrap], logLevel: logLevel.ERROR });
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] });

  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: count }, (_, i) => ({
    key: `key-${i}`,
    value: `value-${i}`,
    partition: i % 3,
    headers: { n: `${i}` },
    timestamp: `${1000 + i}`,
  }));
  const half = count / 2;
  await producer.send({ topic, messages: messages.slice(0, half) });
  await producer.send({ topic, messages: messages.slice(half), compression: CompressionTypes.GZIP });
  await producer.disconnect();

  const offsets = await admin.fetchTopicOffsets(topic);
  const topics = await admin.listTopics();
  await admin.disconnect();
  console.log(JSON.stringify({ offsets, topics }));
}

main(process.argv[2], process.argv[3], Number(process.argv[4])).catch((error) => {
  console.error(error);
  process.exit(1);
});
