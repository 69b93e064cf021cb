"""Events of an asset, in the environment of Dagster: one for each line of the input; prints the clock after each."""

from __future__ import annotations

import sys
import time

import dagster

with dagster.DagsterInstance.get() as instance:
    for _ in sys.stdin:
        instance.report_runless_asset_event(dagster.AssetMaterialization("bell"))
        print(time.monotonic(), flush=True)
