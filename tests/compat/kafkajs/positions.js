// Where kafkajs reads from: the log's start, a time, beyond a pause, and below the log's start.
// Each step waits for so many records and prints the offsets that arrived in it.
const { Kafka, logLevel } = require("kafkajs");
const { readFileSync } = require("node:fs");

async function main({ bootstrap, topic, counts, timestamp }) {
  const kafka = new Kafka({ clientId: "compat", brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  const producer = kafka.producer();
  const consumer = kafka.consumer({
    groupId: topic,
    readUncommitted: false,
    maxBytesPerPartition: 1, // smaller than a batch
    maxWaitTimeInMs: 100,
    retry: { initialRetryTime: 50 },
  });
  await Promise.all([admin.connect(), producer.connect(), consumer.connect()]);
  await consumer.subscribe({ topics: [topic], fromBeginning: true });

  let arrived = [];
  let wake = () => {};
  const eachMessage = async ({ message }) => {
    arrived.push(Number(message.offset));
    wake();
  };
  const failed = new Promise((_, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      if (!payload.restart) reject(payload.error);
    });
  });
  const answer = {};
  const step = async (name, change) => {
    arrived = [];
    await change();
    while (arrived.length < counts[name]) {
      await Promise.race([failed, new Promise((resolve) => (wake = resolve))]);
    }
    answer[name] = arrived;
  };

  await step("beginning", () => consumer.run({ eachMessage, autoCommit: false }));
  await step("time", async () => {
    const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp);
    consumer.seek({ topic, partition: 0, offset });
  });
  await step("pause", async () => {
    consumer.pause([{ topic }]);
    await producer.send({ topic, messages: [{ value: "paused" }] });
    await new Promise((resolve) => setTimeout(resolve, 300));
    answer.paused = [...arrived];
    consumer.resume([{ topic }]);
  });
  await step("reset", async () => consumer.seek({ topic, partition: 0, offset: "0" }));
  await Promise.all([admin.disconnect(), producer.disconnect(), consumer.disconnect()]);
  console.log(JSON.stringify(answer));
}

main(JSON.parse(readFileSync(0))).catch((error) => {
  console.error(error);
  process.exit(1);
});
