"""Versions of tools and services that are not Python packages.

Python packages are in requirements/, the oldest Python and Java in infra/preflight.py, which may run with
a Python too old to import this. After a change run `make lock` and commit infra/toolchain/jars.lock.
"""

from typing import Final

SCALA: Final = "2.13"
SPARK: Final = "4.1.2"
# Not 4.3 or 4.4: they leave out partitions without a leader when they end a transaction
# (docs/concepts/track-record.md).
KAFKA: Final = "4.2.2"
MARIADB: Final = "11.4.5"
# The LTS series of MySQL in its image. Debian keeps only its newest package, so a patch release cannot be
# pinned; within an LTS series a server reads the data of any patch release, older or newer.
MYSQL: Final = "9.7"
SLF4J: Final = "1.7.36"

# S3A must have the version of the Hadoop that pyspark ships. It was built against this AWS SDK. Its own
# dependency is a bundle of 641 MB; infra/toolchain/maven.py names the parts that it calls.
HADOOP: Final = "3.4.2"
AWS_SDK: Final = "2.29.52"
ANALYTICS_ACCELERATOR: Final = "1.2.1"

# Compiles the classes of jobs/java, because a JRE has no javac. 3.39.0 runs on Java 17; newer versions
# need Java 21.
ECJ: Final = "3.39.0"

# The S3 server of tests and laptops: a Go module, its hash as go.sum writes it.
VERSITYGW: Final = "1.8.0"
VERSITYGW_SUM: Final = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="

# The API server of the operator's tests, Go modules too. infra/toolchain/kubernetes.sum and etcd.sum pin
# the parts that these releases publish as modules of their own.
KUBERNETES: Final = "1.37.1"
KUBERNETES_SUM: Final = "h1:LTUzSbp9n0W7649oVKBYfC48zcoD3vCk++1PZQn28q8="
ETCD: Final = "3.7.0"
ETCD_SUM: Final = "h1:ScdUdN8ljuimp0lZaNq0otLMrHcFSFT+dQyT1j7JSFo="

# Tools of charts and of the cluster (infra/toolchain/go_programs.py), Go modules as above.
HELM: Final = "4.3.1"
HELM_SUM: Final = "h1:UndCoLe9UPmNoL7IvWzaUXveL7T5t/ijoorEmgJdI9g="
KIND: Final = "0.33.0"
KIND_SUM: Final = "h1:AjvDv3vOygb/VKLVQW87lfktIBzkxR8Ump9DjxC8+Lk="
# Prometheus 3.15 by its number as a module. Tests fire the alerts of the charts in it, and in promtool.
PROMETHEUS: Final = "0.315.0"
PROMETHEUS_SUM: Final = "h1:sFGZWmC2Hk9N1NBJGCnXYZb5hyLCq8yuAMoEjLAg6ac="

# The other programs of the cluster's node (infra/offline/kind_node/programs.py), Go modules too. containerd,
# the CNI plugins, etcd and CoreDNS have the versions of kind's stock node image.
CONTAINERD: Final = "2.3.4"
CONTAINERD_SUM: Final = "h1:c2PJo/9UGVdiiw8SwrxuLxWGY+9b3jQ6Xp9zntneIvI="
CNI_PLUGINS: Final = "1.9.1"
CNI_PLUGINS_SUM: Final = "h1:8oU6WsIsU3bpnNZuvHp74a6cE1MJwbj2P7s4/yTUNlA="
COREDNS: Final = "1.14.6"
COREDNS_SUM: Final = "h1:V2g2JdCWJVqYGdX8tlBiK0iQo23Pnt8xs8gHqKyFYs8="
LOCAL_PATH: Final = "0.0.30"
LOCAL_PATH_SUM: Final = "h1:OkiuofkCSscddl7tma/B9Ox1wu+JEVSrP7IcZI65Ggo="

# The components of the OpenTelemetry Collector in infra/images/collector/go.mod, and one hash of
# everything that is linked; a build that gets another hash prints it.
OTELCOL: Final = "0.157.0"
OTELCOL_SUM: Final = "eeb18badb7604ae93a3ba27dd32cf524e4239a128584e95f16988f1a0a012263"

# The operator whose CRDs charts/kafka renders objects for (tests/integration/charts/strimzi_crds.py).
STRIMZI: Final = "1.2.0"

# The connectors of Flink, a peer in `make bench` (requirements/flink.in). That for JDBC needs a dialect of
# MySQL, of which the release for Flink 1.20 is the newest that can be had everywhere; it works.
FLINK_KAFKA: Final = "5.0.0-2.2"
FLINK_JDBC: Final = "4.0.0-2.0"
FLINK_JDBC_MYSQL: Final = "3.3.0-1.20"
# Kafka Streams, another peer; its own release, because a peer runs on what its users have.
KAFKA_STREAMS: Final = "4.3.1"
# The JDBC driver with which Spark writes MySQL there, for measurements only. LGPL, so nothing else has it.
MARIADB_JDBC: Final = "3.5.11"
# The profiler of JVMs for `make bench ARGS="... --profile FOLDER"`.
ASYNC_PROFILER: Final = "4.2"

# The oldest Go that the modules above accept.
GO_OLDEST: Final = "1.26.3"

# Serves Kafka's JMX metrics to Prometheus, in the JVM of the node.
JMX_EXPORTER: Final = "1.0.1"

# Serves MySQL's metrics to Prometheus: a Go module in the mysql image.
MYSQLD_EXPORTER: Final = "0.19.0"
MYSQLD_EXPORTER_SUM: Final = "h1:0V9oxdoltX9bclyT7cooF2E50ktUiz6AK0IQm4+rCS0="

# Spark 4.1.x was published without this module; 4.0.0 is the last release that has it. Spark's
# Kafka source calls 11 of its members and all exist with the same signatures. What cannot link is
# the logging of Kafka delegation tokens (Kerberos), which nothing here uses.
SPARK_KAFKA_TOKENS: Final = "4.0.0"

# Compiles requirements/*.in; not part of the environment.
UV: Final = "0.13.8"
