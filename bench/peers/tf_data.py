"""tf.data, with the decoder that knows the crop.

`tf-data` resizes with antialias as the others do; `tf-data-plain` is the usual recipe for ImageNet: no antialias and
the fast, less exact inverse DCT. The map's threads are limited to two; batching and the consumer run beside them.
Its own tuning is off: with it, about every other run left half of the machine idle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.harness import Window
from bench.peers.peer import Peer
from bench.peers.venvs import Environment
from bench.pipeline import AREA, ASPECT, BATCH, MEAN_255, SIDE, STD_255, WORKERS, Task

ENVIRONMENT = Environment("tensorflow", ("tensorflow-cpu",), sees_torch=False)


def _contend(task: Task, antialias: bool) -> Window:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    mean, deviation = tf.constant(MEAN_255, tf.float32), tf.constant(STD_255, tf.float32)

    def prepare(path: Any) -> Any:
        encoded = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(encoded),
            tf.zeros([1, 0, 4]),
            aspect_ratio_range=ASPECT,
            area_range=AREA,
            max_attempts=10,
            min_object_covered=0.0,
            use_image_if_no_bounding_boxes=True,
        )
        crop = tf.concat([begin[:2], size[:2]], axis=0)
        method = "" if antialias else "INTEGER_FAST"
        pixels = tf.image.decode_and_crop_jpeg(encoded, crop, channels=3, dct_method=method)
        pixels = tf.image.resize(pixels, [SIDE, SIDE], "bilinear", antialias=antialias)
        pixels = (tf.image.random_flip_left_right(pixels) - mean) / deviation
        return tf.transpose(pixels, [2, 0, 1])

    options = tf.data.Options()
    options.threading.private_threadpool_size = WORKERS
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    options.autotune.enabled = False

    def batches() -> Iterator[Any]:
        paths = tf.data.Dataset.from_tensor_slices(task.paths).shuffle(len(task.paths)).repeat()
        prepared = paths.map(prepare, num_parallel_calls=WORKERS, deterministic=False)
        for batch in prepared.batch(BATCH).prefetch(2).with_options(options):
            yield batch.numpy()

    return task.measure(batches)


ANTIALIAS = Peer("tf-data", "tf.data", "", partial(_contend, antialias=True), ENVIRONMENT)
PLAIN = Peer(
    "tf-data-plain",
    "tf.data, no antialias",
    "no antialias, fast inverse DCT",
    partial(_contend, antialias=False),
    ENVIRONMENT,
)
