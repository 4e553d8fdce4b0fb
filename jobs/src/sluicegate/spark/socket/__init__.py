"""Lines over TCP as an exactly-once source: receiver, write-ahead log, Spark source."""
