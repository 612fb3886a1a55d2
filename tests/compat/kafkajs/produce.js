// A job of tests/support/round_trip.py, without the reading: kafkajs consumes in groups only.
// It creates the topics itself, and prints the offsets and topics that it is told of afterwards.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");
const { readFileSync } = require("node:fs");

const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };
const data = (text) => (text === null ? null : Buffer.from(text, "base64"));

// Headers of one name are a list here.
function headers(pairs) {
  const found = {};
  for (const [name, text] of pairs) (found[name] ??= []).push(data(text));
  return found;
}

async function main(job) {
  const kafka = new Kafka({
    clientId: "compat",
    brokers: [job.bootstrap],
    logLevel: logLevel.ERROR,
  });
  const admin = kafka.admin();
  await admin.connect();
  const wanted = job.topics.map(({ name }) => ({ topic: name, numPartitions: job.partitions }));
  await admin.createTopics({ topics: wanted });

  const messages = job.rows.map((row) => ({
    partition: row.partition,
    timestamp: `${row.timestamp}`,
    key: data(row.key),
    value: data(row.value),
    headers: headers(row.headers),
  }));
  const producer = kafka.producer();
  await producer.connect();
  for (const { name, codec } of job.topics) {
    for (let at = 0; at < messages.length; at += 50) {
      const some = messages.slice(at, at + 50);
      await producer.send({ topic: name, messages: some, compression: CODECS[codec] });
    }
  }
  await producer.disconnect();

  const offsets = {};
  for (const { name } of job.topics) offsets[name] = await admin.fetchTopicOffsets(name);
  const topics = await admin.listTopics();
  await admin.disconnect();
  console.log(JSON.stringify({ offsets, topics }));
}

main(JSON.parse(readFileSync(0))).catch((error) => {
  console.error(error);
  process.exit(1);
});
