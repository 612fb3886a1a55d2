import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads "FetchRequest 16 hex" from each line, decodes and encodes it, and prints the bytes in hex.
 *  Prints "none" for a message or version that this Kafka does not have, and what went wrong else. */
public class Codec {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 3);
            System.out.println(again(parts[0], Short.parseShort(parts[1]), parts[2]));
        }
    }

    private static String again(String name, short version, String hex) throws Exception {
        ApiMessage message;
        try {
            Class<?> type = Class.forName("org.apache.kafka.common.message." + name + "Data");
            message = (ApiMessage) type.getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException e) {
            return "none";
        }
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            return "none";
        }
        try {
            ByteBuffer in = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            message.read(new ByteBufferAccessor(in), version);
            if (in.hasRemaining()) {
                return in.remaining() + " bytes are left over";
            }
            var cache = new ObjectSerializationCache();
            ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(out), cache, version);
            return HexFormat.of().formatHex(out.array());
        } catch (RuntimeException e) {
            return e.toString();
        }
    }
}
