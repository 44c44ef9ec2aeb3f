"""Whether a net learns the same in every order: `python -m bench.accuracy`."""
