"""Running time of the tasks of a Spark application, for the core-seconds of runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MILLISECOND: Final = timedelta(milliseconds=1)
_COUNT_WITHIN: Final = timedelta(seconds=2)
"""Time that Spark gets to count the tasks that have ended."""
_NONE_YET: Final = -1
_STAGE: Final = "org.apache.spark.status.StageDataWrapper"


class TaskTime:
    """Time for which the tasks of `session`'s application have held cores since the last `start_over`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        # Each `getConf` copies all settings, one call of the JVM each: 6 ms (measured).
        self._cores = int(session.sparkContext.getConf().get("spark.task.cpus", "1"))
        self._before = _NONE_YET
        """The newest stage at the last `start_over`."""

    def start_over(self) -> None:
        """Count from now on."""
        self._before = next((stage for stage, _ in self._stages()), _NONE_YET)

    def measure(self) -> timedelta | None:
        """Return the running time of all tasks, also of failed ones, times `spark.task.cpus`. None if it is not known.

        Nothing is known of a Spark that has ended, or whose listeners take seconds. The same holds after so many stages
        that Spark has forgotten the first of them (`spark.ui.retainedStages`, 1,000). Stages are summed up: as the time
        of a local executor Spark shows the time since its start. Cost: some 2 ms for each stage.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            # A listener counts the tasks, a moment after their job has ended.
            self._jvm_context.listenerBus().waitUntilEmpty(_COUNT_WITHIN // _MILLISECOND)
            oldest, total = None, 0
            for stage, time in self._stages():
                if stage <= self._before:
                    break
                oldest, total = stage, total + time
        except (Py4JError, OSError, AttributeError):  # the last one after the program has stopped Spark
            return None
        is_whole = oldest is None or oldest == self._before + 1
        return self._cores * _MILLISECOND * total if is_whole else None

    @property
    def _jvm_context(self) -> Any:  # noqa: ANN401  # an object of the JVM
        return self._session.sparkContext._jsc.sc()  # noqa: SLF001  # PySpark has no other way

    def _stages(self) -> Iterator[tuple[int, int]]:
        """Yield the stages that Spark knows, the newest first, with the running time of their tasks in milliseconds."""
        jvm: Any = self._session._jvm  # noqa: SLF001  # PySpark has no other way
        kind = jvm.java.lang.Class.forName(_STAGE)
        found = self._jvm_context.statusStore().store().view(kind).reverse().iterator()
        while found.hasNext():
            stage = found.next().info()
            yield int(stage.stageId()), int(stage.executorRunTime())
