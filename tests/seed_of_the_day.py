"""The seed that a campaign plays today and not tomorrow."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Final

TODAY: Final = int(os.environ.get("TIDEMILL_SEED") or f"{datetime.now(UTC):%Y%m%d}")
"""The day as a number, 20260131; TIDEMILL_SEED=n plays those of another day again."""
