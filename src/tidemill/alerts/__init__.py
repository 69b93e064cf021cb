"""Alerts: rules about states that last, alerts while they do, and the outbox from which targets are notified."""
