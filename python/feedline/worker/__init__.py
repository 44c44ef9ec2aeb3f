"""What worker processes share: messages, shared memory, seeds, and the processes that call functions of ``ops.Map``.

In: requests of the engine. Out: replies. Nothing here imports torch, so that functions without torch start quickly.
"""
