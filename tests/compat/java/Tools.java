import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.internals.Exit;

/** Runs Kafka's command line tools one after another in one virtual machine.
 *  Stdin: [{"tool": class, "arguments": [...], "input": text}]; stdout: [{"exit", "output"}]. */
public class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static Integer firstExit;

    public static void main(String[] arguments) throws Exception {
        JsonNode runs = JSON.readTree(System.in);
        PrintStream out = System.out;
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        ArrayNode answer = JSON.createArrayNode();
        for (JsonNode run : runs) {
            var output = new ByteArrayOutputStream();
            System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
            System.setErr(System.out);
            byte[] input = run.get("input").asText().getBytes(StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(input));
            int exit = run(run);
            hooks.forEach(Runnable::run);
            hooks.clear();
            answer.addObject()
                    .put("exit", exit)
                    .put("output", output.toString(StandardCharsets.UTF_8));
        }
        out.println(JSON.writeValueAsString(answer));
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static int run(JsonNode run) throws Exception {
        firstExit = null;
        String[] arguments = JSON.treeToValue(run.get("arguments"), String[].class);
        var main = Class.forName(run.get("tool").asText()).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Ended) {
                return firstExit;
            }
            e.getCause().printStackTrace(System.out);
            return 1;
        }
    }

    /** What a tool's exit becomes. Some tools catch it and exit again: the first one counts. */
    private static final class Ended extends Error {
        Ended(int code) {
            super("exit " + code, null, false, false);
            if (firstExit == null) {
                firstExit = code;
            }
        }
    }
}
