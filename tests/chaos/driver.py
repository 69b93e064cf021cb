"""A driver as a runner starts it, whose programs publish texts: `python -m tests.chaos.driver`."""

from __future__ import annotations

from tidemill.run.processes.driver import main
from tidemill.testing.plain import write_texts

if __name__ == "__main__":
    main(writer=write_texts)
