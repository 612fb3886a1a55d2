// Reads a topic as a member of a group until it has seen so many records, and leaves.
const { Kafka, logLevel } = require("kafkajs");
const { readFileSync } = require("node:fs");

async function main({ bootstrap, topic, group, count }) {
  const kafka = new Kafka({ clientId: "compat", brokers: [bootstrap], logLevel: logLevel.ERROR });
  const consumer = kafka.consumer({ groupId: group });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    const eachMessage = async ({ message }) => {
      values.push(message.value.toString());
      if (values.length === count) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  console.log(JSON.stringify(values));
}

main(JSON.parse(readFileSync(0))).catch((error) => {
  console.error(error);
  process.exit(1);
});
