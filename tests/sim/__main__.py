"""Simulate many schedules, or show one: `python -m tests.sim --help`."""

from __future__ import annotations

import sys

from tests.sim.campaign import main

if __name__ == "__main__":
    sys.exit(main())
