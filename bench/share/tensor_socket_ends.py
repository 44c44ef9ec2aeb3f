"""Both ends of TensorSocket over the same torch DataLoader, in an environment that has it.

In: a folder, four free ports and a way to hand tensors over. Out: `python -m bench.share.tensor_socket_ends FOLDER
BATCH PORTS WAY` produces until it is ended; `consumer(PORTS, WAY, BATCH)` gives an epoch each time it is iterated.

Two things stand in its way where there is no GPU. A ZeroMQ publisher sends nothing before its subscriber has looked
into its socket, and the producer looks into that of acknowledgements only once it has sent its first batches: those of
quick consumers are lost, upon which it sends the same batches for ever. And each slice of a batch is pickled together
with all the memory that it is a slice of, for every consumer, and sent over TCP. So there are three ways:
`as-shipped`; `greeted`, where the producer looks in time, consumers first acknowledge in the name of nobody, and a
producer batch is two loader batches, the fewest with which it runs, instead of eight; and `shared-memory`, which is
`greeted` with the functions that it lets one replace (`pack_fn`, `unpack_fn`): tensors stay in memory that all see, and
only their names are sent. In all of them it drops the last batches of each epoch.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

WAYS = ("as-shipped", "greeted", "shared-memory")
BUFFER = 10
GREETINGS = 8


def _ports(given: str) -> dict[str, Any]:
    port, acknowledged, out, back = map(int, given.split(","))
    return {"port": port, "ack_port": acknowledged, "heart_ports": (out, back)}


def named(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give the names under which other processes find the memory of tensors."""
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_system")
    found = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        where = tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
        found.append((storage._share_filename_cpu_(), tensor.dtype, where))
    return tuple(found)


class Opened:
    """Tensors by their names; memory that was mapped once stays mapped, as the producer uses it again."""

    def __init__(self) -> None:
        self._mapped: dict[bytes, Any] = {}

    def __call__(self, names: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give the tensors that `named` has named."""
        import torch

        tensors = []
        for (manager, handle, size), dtype, where in names:
            if handle not in self._mapped:
                self._mapped[handle] = torch.UntypedStorage._new_shared_filename_cpu(manager, handle, size)
            tensors.append(torch.empty(0, dtype=dtype).set_(self._mapped[handle], *where))
        return tuple(tensors)


def consumer(ports: str, way: str, batch: int) -> Any:
    """Give a consumer; it waits for the producer."""
    from tensorsocket import TensorConsumer

    more = {"unpack_fn": Opened()} if way == "shared-memory" else {}
    found: Any = TensorConsumer(**_ports(ports), batch_size=batch, **more)
    if way != "as-shipped":
        for _ in range(GREETINGS):
            found.ack_socket.send_multipart([b"nobody", b"-1", b"0"])
            time.sleep(0.01)
    return found


def produce(folder: Path, batch: int, ports: str, way: str) -> None:
    """Produce epoch after epoch for all attached consumers."""
    from tensorsocket import TensorProducer
    from tensorsocket.producer import TensorPool

    from bench.share.torch_loader import loader

    _, batches = loader(folder, batch)
    more: dict[str, Any] = {} if way == "as-shipped" else {"producer_batch_size": 2}
    if way == "shared-memory":
        more["pack_fn"] = named
    producer = TensorProducer(batches, **_ports(ports), consumer_max_buffer_size=BUFFER, **more)
    # A consumer has as many batches in its queue, one at its door and one in use; their memory is not used again.
    producer.pool = TensorPool(BUFFER + 3)
    while True:
        for _ in producer:
            if way != "as-shipped":
                producer.ack_socket.poll(0)


if __name__ == "__main__":
    produce(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
