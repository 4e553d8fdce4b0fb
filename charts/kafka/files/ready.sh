# Whether this node may count as ready. After a start it is not until all its replicas are in sync: a rolling
# restart then waits before it stops the next node, which may be the last other one with the newest records.
# The check runs until it has succeeded once: the tool is a JVM of its own.
[ -e /tmp/caught-up ] && exit 0
. /etc/kafka/scripts/client.sh
# the name that its certificate has
BROKERS=$(sed -n 's/^advertised.listeners=CLIENT:..\([^,]*\),.*/\1/p' /tmp/server.properties)
node=$(sed -n 's/^node.id *= *//p' /tmp/server.properties)
tool org.apache.kafka.tools.TopicCommand --describe --under-replicated-partitions > /tmp/behind
while read -r line || [ -n "$line" ]; do
  replicas=${line#*Replicas: }
  replicas=${replicas%%[!0-9,]*}
  isr=${line#*Isr: }
  isr=${isr%%[!0-9,]*}
  case ,$replicas, in
  *,$node,*)
    case ,$isr, in
    *,$node,*) ;;
    *)
      echo "not in sync: $line" >&2
      exit 1
      ;;
    esac
    ;;
  esac
done < /tmp/behind
touch /tmp/caught-up
