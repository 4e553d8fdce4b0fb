"""A complete valid example of each kind, and a minimal one."""

from typing import Any, Final

from sluicegate_operator.api.crds import CHECKPOINT_VOLUME, SAVEPOINT, STREAMING_JOB

Object = dict[str, Any]

MINIMAL_JOB: Final[Object] = {
    "image": "registry.example/orders:1",
    "mainModule": "orders",
    "checkpoint": {"volume": "main"},
}
MINIMAL_VOLUME: Final[Object] = {"bucket": "checkpoints"}
MINIMAL_SAVEPOINT: Final[Object] = {"job": "orders"}

FULL_JOB: Final[Object] = {
    "image": "registry.example/orders:1",
    "imagePullPolicy": "Always",
    "imagePullSecrets": ["registry"],
    "mainFile": "/app/orders.py",
    "arguments": ["--table", "orders"],
    "sparkConf": {"spark.sql.shuffle.partitions": "8"},
    "serviceAccount": "orders",
    "driver": {
        "cores": 2,
        "memory": "2g",
        "memoryOverhead": "512m",
        "template": {"spec": {"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "x"}]}},
    },
    "executor": {
        "cores": 4,
        "memory": "8g",
        "memoryOverhead": "1g",
        "instances": 3,
        "template": {},
    },
    "checkpoint": {"volume": "main", "path": "orders/eu", "restoreFrom": "before-the-move"},
    "trigger": "Interval",
    "epochs": {
        "interval": "30 seconds",
        "delivery": "AtLeastOnce",
        "minPauseMilliseconds": 100,
        "timeoutSeconds": 120,
        "progressTimeoutSeconds": 900,
        "toleratedFailures": 2,
        "maxConcurrent": 1,
        "onCancel": "Delete",
        "stateBackend": "HDFS",
        "inlineBytes": 1024,
        "metricsPort": 9464,
        "commitSourceOffsets": False,
        "sourceGroup": "orders-lag",
        "maxPartBytes": 1073741824,
        "applyTimeoutSeconds": 30.5,
        "overlap": True,
    },
    "stateful": False,
    "standby": 0,
    "deadLetterTopic": "orders-dead",
    "tracing": {"endpoint": "http://collector:4318"},
    "terminationGracePeriodSeconds": 60,
    "suspend": True,
    "restartNonce": 3,
    "ttlSecondsAfterFinished": 600,
    "upgradeMode": "Savepoint",
    "savepointTimeoutSeconds": 300,
    "upgradeSavepointHistory": 3,
    "rollback": {"enabled": True, "deadlineSeconds": 120},
    "restart": {
        "strategy": "FailureRate",
        "attempts": 5,
        "delaySeconds": 1,
        "maxFailures": 2,
        "intervalSeconds": 60,
        "initialDelaySeconds": 0.5,
        "maxDelaySeconds": 30,
        "multiplier": 1.5,
        "jitter": 0,
        "resetAfterSeconds": 0,
    },
    "startup": {
        "imagePullTimeoutSeconds": 60,
        "imagePullAttempts": 1,
        "schedulingTimeoutSeconds": 60,
        "schedulingAttempts": 1,
        "startTimeoutSeconds": 60,
        "startAttempts": 1,
    },
    "progressDeadlineSeconds": 0,
    "nodeLost": {"deadlineSeconds": 30, "statefulPolicy": "Restart"},
}
BATCH_JOB: Final[Object] = {
    **MINIMAL_JOB,
    "trigger": "AvailableNow",
    "schedule": {
        "cron": "*/5 * * * *",
        "timeZone": "Europe/Berlin",
        "concurrencyPolicy": "Replace",
        "startingDeadlineSeconds": 60,
    },
}
FULL_VOLUME: Final[Object] = {
    "endpoint": "https://minio.example:9000",
    "region": "eu-central-1",
    "bucket": "checkpoints",
    "prefix": "team/a",
    "credentialsSecret": "minio",
    "retention": {"savepoints": 3, "epochs": 10},
    "reclaimPolicy": "Delete",
    "quotaBytes": 1_000_000_000_000,
}
FULL_SAVEPOINT: Final[Object] = {
    "job": "orders",
    "volume": "archive",
    "stop": False,
    "schedule": {"cron": "0 3 * * *", "timeZone": "UTC", "startingDeadlineSeconds": 3600},
    "history": 7,
    "historyMaxAgeSeconds": 86400,
    "reclaimPolicy": "Delete",
}

MINIMAL: Final = {
    STREAMING_JOB: MINIMAL_JOB,
    CHECKPOINT_VOLUME: MINIMAL_VOLUME,
    SAVEPOINT: MINIMAL_SAVEPOINT,
}
FULL: Final = {
    STREAMING_JOB: FULL_JOB,
    CHECKPOINT_VOLUME: FULL_VOLUME,
    SAVEPOINT: FULL_SAVEPOINT,
}


def merged(spec: Object, change: Object) -> Object:
    """Return a spec with a change merged in; None removes a field."""
    result = dict(spec)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], value)
        else:
            result[name] = value
    return result
