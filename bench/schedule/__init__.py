"""How well samples of very different cost are scheduled: `python -m bench.schedule`."""
