// Logs in by each mechanism and prints what became of it.
const { Kafka, logLevel } = require("kafkajs");

async function outcome(broker, mechanism, password) {
  const kafka = new Kafka({
    brokers: [broker],
    reauthenticationThreshold: 100, // ms; sessions are short here
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    sasl: { mechanism, username: "alice", password },
  });
  const admin = kafka.admin();
  try {
    await admin.connect();
    return (await admin.describeCluster()).brokers.length;
  } catch (error) {
    return error.name;
  } finally {
    await admin.disconnect();
  }
}

async function main(broker, password) {
  const found = {};
  for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"]) {
    found[mechanism] = await outcome(broker, mechanism, password);
  }
  found.wrong = await outcome(broker, "scram-sha-256", "wrong");
  console.log(JSON.stringify(found));
}

main(process.argv[2], process.argv[3]);
