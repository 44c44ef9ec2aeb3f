"""All who take part, in the order in which they run; to add one is to add its file and a line here."""

from __future__ import annotations

from collections.abc import Callable

from bench.peers import (
    dali,
    data_go,
    feedline,
    ffcv,
    grain,
    libjpeg_turbo,
    lit_data,
    mosaic_streaming,
    spdl,
    tf_data,
    torch_dataloader,
    web_dataset,
)
from bench.peers.peer import Peer

OURS = (feedline.WITHOUT_INDEX, feedline.BUILDING, feedline.WITH_INDEX, feedline.PACKED, feedline.PIXELS)
PEERS = (
    dali.DALI,
    ffcv.JPEG,
    ffcv.RAW,
    tf_data.ANTIALIAS,
    tf_data.PLAIN,
    grain.THREADS,
    grain.PROCESSES,
    spdl.FFMPEG,
    spdl.TORCHVISION,
    lit_data.LITDATA,
    web_dataset.WEBDATASET,
    mosaic_streaming.MOSAIC,
    data_go.DATAGO,
    torch_dataloader.TORCHVISION,
    torch_dataloader.TORCHVISION_UNORDERED,
    torch_dataloader.PILLOW,
    torch_dataloader.PILLOW_UNORDERED,
)
ALL: dict[str, Peer] = {peer.name: peer for peer in (*OURS, libjpeg_turbo.ALONE, *PEERS)}

CONVERT = "convert:"
CONTENDERS: dict[str, Callable[..., None]] = {
    **{name: peer.run for name, peer in ALL.items()},
    **{CONVERT + name: peer.run_convert for name, peer in ALL.items()},
}
