"""From message to run: the event-driven scheduler of seed 001. It knows messages, not the lake."""
