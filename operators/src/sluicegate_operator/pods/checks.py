"""What is wrong with a job that no schema can see, before a pod is made of it.

Called by whoever reads a StreamingJob, beside `resources.parsing`; what it returns goes to
`reconcile.job.refused`.
"""

from __future__ import annotations

from sluicegate.protocol.errors import SettingsInvalid
from sluicegate_operator.pods.conf import refused_conf
from sluicegate_operator.pods.names import refused_name
from sluicegate_operator.pods.templates import refused_template
from sluicegate_operator.resources.job import StreamingJobSpec
from sluicegate_operator.resources.marks import DRIVER, EXECUTOR


def refused(job: str, spec: StreamingJobSpec) -> SettingsInvalid | None:
    """Return why no driver can be made of a job, or None.

    Args:
        job: its name.
        spec: its spec.
    """
    return (
        refused_name(job)
        or refused_conf(spec)
        or refused_template(spec.driver.template, DRIVER, "driver.template", driver=True)
        or refused_template(spec.executor.template, EXECUTOR, "executor.template", driver=False)
    )
