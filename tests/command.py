"""The command `tidemill` of this environment, for tests that start it as a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

TIDEMILL: Final = str(Path(sys.executable).with_name("tidemill"))
