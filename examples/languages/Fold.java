// Folds the lines that keepwatch watch appends to LOG:  java Fold.java LOG STATE
//
// STATE has the position in LOG, and the last line of each object. Both are replaced together,
// so the program may be killed at any time. Java has no JSON; the members before the object are always in this order.
import static java.nio.charset.StandardCharsets.ISO_8859_1; // a character a byte
import java.io.RandomAccessFile;
import java.nio.file.*;
import java.util.*;
import java.util.regex.Pattern;

class Fold {
    static final Pattern EVENT = Pattern.compile("\\{\"type\":\"(ADDED|MODIFIED|DELETED)\",\"revision\":\"\\d+\",\"id\":\"([^/]+)/[^\"]+\",\"resource\":\"([^\"]+)\",\"object\":.*}}");
    static final Map<String, String> objects = new LinkedHashMap<>(); // lines by resource and UID

    static void fold(String line) {
        var event = EVENT.matcher(line);
        if (line.startsWith("{\"type\":\"SYNCED\""))
            System.out.println(objects.size() + " objects: " + line);
        if (!event.matches())
            return; // also a line that keepwatch was killed in; the event is repeated
        objects.remove(event.group(3) + " " + event.group(2));
        if (!event.group(1).equals("DELETED"))
            objects.put(event.group(3) + " " + event.group(2), line);
    }

    public static void main(String[] args) throws Exception {
        Path log = Path.of(args[0]), state = Path.of(args[1]), replacement = Path.of(args[1] + ".new");
        long position = 0;
        if (Files.exists(state)) {
            var lines = Files.readAllLines(state, ISO_8859_1);
            position = Long.parseLong(lines.remove(0));
            lines.forEach(Fold::fold);
        }
        byte[] buffer = new byte[1 << 20];
        try (var file = new RandomAccessFile(log.toFile(), "r")) {
            for (long saved = position;;) {
                file.seek(position);
                int n = Math.max(file.read(buffer), 0), end = n;
                while (end > 0 && buffer[end - 1] != '\n')
                    end--;
                new String(buffer, 0, end, ISO_8859_1).lines().forEach(Fold::fold);
                position += end;
                if (end == 0 && n == buffer.length)
                    buffer = new byte[2 * n]; // a long line
                else if (end == 0 && position != saved) {
                    var text = new StringBuilder(position + "\n");
                    objects.values().forEach(line -> text.append(line).append('\n'));
                    Files.writeString(replacement, text, ISO_8859_1);
                    Files.move(replacement, state, StandardCopyOption.ATOMIC_MOVE);
                    saved = position;
                } else if (end == 0)
                    Thread.sleep(100);
            }
        }
    }
}
