"""The worker side: a process that calls the user's dataset and writes samples into shared memory.

In: requests of the engine. Out: replies, slots and payloads. Nothing here imports the loader or the engine.
"""
