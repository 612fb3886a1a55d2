// Logs in as each of the job's users, and says "ok" or what Kafka's exception is called.
// A job is a line: the bootstrap address, then for each login the client's properties, ";;" between.

import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;

public class Logins {
    public static void main(String[] args) throws Exception {
        String job = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        for (String text : job.split(";;")) {
            Properties properties = new Properties();
            properties.load(new StringReader(text));
            System.out.println(login(properties));
        }
    }

    static String login(Properties properties) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            return admin.listTopics().names().get(20, TimeUnit.SECONDS).isEmpty() ? "empty" : "ok";
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName();
        }
    }
}
