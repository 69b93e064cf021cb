"""The step: one transaction of an attempt, with its inputs and its outputs."""
