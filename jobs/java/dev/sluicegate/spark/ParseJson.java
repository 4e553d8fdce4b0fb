package dev.sluicegate.spark;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonLocation;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.CharConversionException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Parses a JSON object (RFC 8259) into the columns of a schema; null if the bytes are not one object.
 *
 * <p>Spark's from_json opens a decoder of characters for each text. This function parses the bytes of a
 * record as they are. What it returns is described in sluicegate.spark.json_objects.
 */
public final class ParseJson implements UDF1<byte[], Row> {
  private static final long serialVersionUID = 1L;

  /** The length of numbers and strings is unlimited, as in Python; Jackson's limits of names and depth hold. */
  private static final JsonFactory FACTORY =
      JsonFactory.builder()
          .streamReadConstraints(
              StreamReadConstraints.builder()
                  .maxNumberLength(Integer.MAX_VALUE)
                  .maxStringLength(Integer.MAX_VALUE)
                  .build())
          .build();

  /** The value of a column that cannot have it; a later field of the same name replaces it. */
  private static final Object INVALID = new Object();

  private final Map<String, Integer> places = new HashMap<>();

  /** Whether the column at a place is a bigint; otherwise it is a string. */
  private final boolean[] isLong;

  private ParseJson(StructType columns) {
    StructField[] fields = columns.fields();
    isLong = new boolean[fields.length];
    for (int place = 0; place < fields.length; place++) {
      places.put(fields[place].name(), place);
      isLong[place] = fields[place].dataType().equals(DataTypes.LongType);
    }
  }

  /** Returns the function of a column of bytes, for columns of the types string and bigint. */
  public static UserDefinedFunction of(String columns) {
    StructType type = StructType.fromDDL(columns);
    UDF1<byte[], Row> function = new ParseJson(type);
    return functions.udf(function, type);
  }

  @Override
  public Row call(byte[] json) throws IOException {
    if (json == null) {
      return null;
    }
    try (JsonParser parser = FACTORY.createParser(json)) {
      return isText(parser, json) && parser.nextToken() == JsonToken.START_OBJECT ? row(parser, json) : null;
    } catch (JsonProcessingException | CharConversionException invalid) {
      return null;
    }
  }

  /** Returns whether the bytes are valid in their encoding; Jackson itself also takes overlong forms. */
  private static boolean isText(JsonParser parser, byte[] json) {
    if (isUtf8(parser.currentLocation())) {
      return UTF8String.fromBytes(json).isValid();
    }
    try {
      wideCharset(json).newDecoder().decode(ByteBuffer.wrap(json));
      return true;
    } catch (CharacterCodingException invalid) {
      return false;
    }
  }

  /** Returns whether a location is one in UTF-8: in UTF-16 and UTF-32 Jackson counts characters. */
  private static boolean isUtf8(JsonLocation location) {
    return location.getByteOffset() >= 0;
  }

  private Row row(JsonParser parser, byte[] json) throws IOException {
    Object[] values = new Object[isLong.length];
    String name;
    while ((name = parser.nextFieldName()) != null) {
      Integer place = places.get(name);
      JsonToken token = parser.nextToken();
      if (place == null) {
        parser.skipChildren();
        parser.finishToken(); // a string that nobody reads must be valid too
      } else if (token == JsonToken.VALUE_NULL) {
        values[place] = null;
      } else if (!isLong[place]) {
        String text = text(parser, token, json);
        values[place] = hasHalfPair(text) ? INVALID : text;
      } else if (isLong(parser, token)) {
        values[place] = parser.getLongValue();
      } else {
        values[place] = INVALID;
        parser.skipChildren();
        parser.finishToken();
      }
    }
    boolean valid = parser.nextToken() == null && !Arrays.asList(values).contains(INVALID);
    return valid ? RowFactory.create(values) : null;
  }

  private static boolean isLong(JsonParser parser, JsonToken token) throws IOException {
    return token == JsonToken.VALUE_NUMBER_INT && parser.getNumberType() != JsonParser.NumberType.BIG_INTEGER;
  }

  /** Returns whether a text has half of a surrogate pair, which an escape may be and UTF-8 cannot. */
  private static boolean hasHalfPair(String text) {
    for (int at = 0; at < text.length(); at++) {
      if (Character.isSurrogate(text.charAt(at))) {
        boolean pair = at + 1 < text.length() && Character.isSurrogatePair(text.charAt(at), text.charAt(at + 1));
        if (!pair) {
          return true;
        }
        at++;
      }
    }
    return false;
  }

  private static String text(JsonParser parser, JsonToken token, byte[] json) throws IOException {
    if (!token.isStructStart()) {
      return parser.getText();
    }
    JsonLocation begin = parser.currentTokenLocation();
    parser.skipChildren();
    JsonLocation end = parser.currentLocation();
    if (isUtf8(begin)) {
      int length = (int) (end.getByteOffset() - begin.getByteOffset());
      return new String(json, (int) begin.getByteOffset(), length, StandardCharsets.UTF_8);
    }
    // Jackson counts the characters after a byte order mark
    String text = new String(json, wideCharset(json));
    int mark = text.startsWith("\uFEFF") ? 1 : 0;
    return text.substring(mark + (int) begin.getCharOffset(), mark + (int) end.getCharOffset());
  }

  /** Returns which of UTF-16 and UTF-32 a text has, as Jackson finds it: by a mark or by its zeros. */
  private static Charset wideCharset(byte[] json) {
    boolean big = json[0] == 0 || json[0] == (byte) 0xFE;
    boolean wide = json.length >= 4 && (big ? json[0] == 0 && json[1] == 0 : json[2] == 0 && json[3] == 0);
    return Charset.forName((wide ? "UTF-32" : "UTF-16") + (big ? "BE" : "LE"));
  }
}
