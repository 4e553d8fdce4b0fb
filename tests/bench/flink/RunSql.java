import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * Runs SQL statements on a Flink cluster in this process.
 *
 * <p>Arguments: settings as {@code key=value}, then {@code --}, then the statements. It waits for
 * the end of each job.
 */
public final class RunSql {
    private RunSql() {}

    /** Runs the statements. */
    public static void main(String[] arguments) throws Exception {
        Configuration settings = new Configuration();
        int next = 0;
        for (; !arguments[next].equals("--"); next++) {
            int equals = arguments[next].indexOf('=');
            settings.setString(arguments[next].substring(0, equals), arguments[next].substring(equals + 1));
        }
        TableEnvironment tables =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
        for (next++; next < arguments.length; next++) {
            TableResult result = tables.executeSql(arguments[next]);
            if (result.getJobClient().isPresent()) {
                result.await(1, TimeUnit.HOURS);
            }
        }
    }
}
