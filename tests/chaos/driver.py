"""A driver as a runner starts it, whose programs publish texts: `python -m tests.chaos.driver`."""

from __future__ import annotations

from tests.chaos.site import write_texts
from tidemill.run.driver import main

if __name__ == "__main__":
    main(writer=write_texts)
