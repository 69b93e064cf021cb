"""The app that a played driver loads: the one of the schedule that is being simulated."""

from tests.sim.projects import current_app

app = current_app()
