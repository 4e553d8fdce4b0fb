"""Where this checkout keeps what it makes: jars, binaries, and data of local services.

Only paths; it creates nothing. Called by every module of infra.
"""

import os
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parent.parent


def work_folder() -> Path:
    """Return the work folder: SLUICEGATE_WORK, or `.work` in the checkout."""
    named = os.environ.get("SLUICEGATE_WORK")
    return Path(named).expanduser().resolve() if named else CHECKOUT / ".work"
