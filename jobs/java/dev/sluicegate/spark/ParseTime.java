package dev.sluicegate.spark;

import java.text.ParseException;
import java.time.DateTimeException;
import java.time.ZoneId;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.sql.catalyst.util.TimestampFormatter;

/**
 * Parses a time as Spark's try_to_timestamp does, in microseconds since 1970; null if it does not parse.
 *
 * <p>Spark parses each text, which costs more than a microsecond. The lines of a log have few different
 * times, so this function remembers the last ones.
 */
public final class ParseTime implements UDF3<String, String, String, Long> {
  private static final long serialVersionUID = 1L;

  /** Times that a thread remembers; a power of two. */
  private static final int SLOTS = 1024;

  private static final ThreadLocal<Parser> PARSER = new ThreadLocal<>();

  @Override
  public Long call(String text, String format, String zone) {
    if (text == null) {
      return null;
    }
    Parser parser = PARSER.get();
    if (parser == null || !parser.format.equals(format) || !parser.zone.equals(zone)) {
      parser = new Parser(format, zone);
      PARSER.set(parser);
    }
    return parser.parse(text);
  }

  private static final class Parser {
    final String format;
    final String zone;
    private final TimestampFormatter formatter;
    private final String[] texts = new String[SLOTS];
    private final Long[] times = new Long[SLOTS];

    Parser(String format, String zone) {
      this.format = format;
      this.zone = zone;
      formatter = TimestampFormatter.apply(format, ZoneId.of(zone), true);
    }

    Long parse(String text) {
      int hash = text.hashCode();
      int slot = (hash ^ (hash >>> 16)) & (SLOTS - 1);
      if (!text.equals(texts[slot])) {
        times[slot] = parsed(text);
        texts[slot] = text;
      }
      return times[slot];
    }

    private Long parsed(String text) {
      try {
        return formatter.parse(text);
      } catch (DateTimeException | ParseException invalid) {
        return null;
      }
    }
  }
}
