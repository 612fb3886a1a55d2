// Logs in as each of the job's users, and says "ok" or what kafkajs calls the error.
const { Kafka, logLevel } = require("kafkajs");
const { readFileSync } = require("node:fs");

async function login(bootstrap, { mechanism, user, password, token }) {
  const sasl = {
    mechanism: mechanism.toLowerCase(),
    username: user,
    password,
    oauthBearerProvider: async () => ({ value: token }),
  };
  const kafka = new Kafka({
    clientId: "logins",
    brokers: [bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
    sasl,
  });
  const admin = kafka.admin();
  try {
    await admin.connect();
    return (await admin.listTopics()).length ? "ok" : "empty";
  } catch (error) {
    return error.name;
  } finally {
    await admin.disconnect();
  }
}

async function main(jobs) {
  for (const { bootstrap, ...job } of jobs) console.log(await login(bootstrap, job));
}

main(JSON.parse(readFileSync(0))).catch((error) => {
  console.error(error);
  process.exit(1);
});
