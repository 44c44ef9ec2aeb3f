"""Draws the pictures of the documentation: `python tools/docs/pictures.py [--check]`.

In: bench/results/peers-imagenet.json, and docs/images/doctor.json, a report of `fl.doctor` about the job named there.
Out: SVG files in docs/images. Always true: every figure in a picture comes from those files; `--check` says whether the
pictures are what they give.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from svg import WIDTH, Picture

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs/images"

RACE = {
    "JPEG": {
        "feedline-index": "Feedline, from epoch 2",
        "feedline-building": "Feedline, first epoch",
        "ffcv-jpeg": "FFCV, its own JPEG file",
        "dali": "DALI, CPU",
        "tf-data-plain": "tf.data, no antialias",
        "grain-threads": "Grain",
        "litdata": "LitData",
        "torch-torchvision": "torch DataLoader",
        "webdataset": "WebDataset",
    },
    "Stored pixels": {"feedline-pixels": "Feedline", "ffcv-raw": "FFCV"},
}


def race() -> Picture:
    """Draw images per second of each loader."""
    results = json.loads((ROOT / "bench/results/peers-imagenet.json").read_text())["results"]
    most = max(results[name]["samples_per_second"] for group in RACE.values() for name in group)
    rows = sum(map(len, RACE.values()))
    picture = Picture(34 * len(RACE) + 26 * rows + 10, "Images per second of Feedline and other loaders")
    y = 0.0
    for title, group in RACE.items():
        y += 34
        picture.text(0, y - 10, f"{title}, images per second", "head")
        for name, shown in group.items():
            rate = results[name]["samples_per_second"]
            width = 370 * rate / most
            is_ours = name.startswith("feedline")
            picture.text(204, y + 15, shown, *(["head"] if is_ours else []), anchor="end")
            picture.box(212, y + 2, width, 17, "main" if is_ours else "peer")
            picture.text(218 + width, y + 15, f"{rate:.0f}")
            y += 26
    return picture


def path_of_a_sample() -> Picture:
    """Draw what happens to a sample between the plan and the training loop."""
    picture = Picture(356, "The path of a sample: order, window, threads, read, ops, slot, batch, training loop")
    first = [
        ("1  Order", "which sample comes at", "which position: computed", "from the seed, no list"),
        ("2  Window", "the next positions;", "the sample with the", "least slack goes first"),
        ("3  Worker thread", "takes one sample and", "does all steps below,", "without the Python lock"),
    ]
    second = [
        ("6  Slot", "the last op writes into", "the sample's place in", "the batch: no copy"),
        ("5  Ops", "decode, crop, flip,", "normalise; random draws", "depend on the sample"),
        ("4  Read", "only the bytes that the", "crop needs: disk, shards,", "object store, server"),
    ]
    for y, cards in ((10, first), (138, second)):
        for column, (head, *lines) in enumerate(cards):
            picture.card(4 + 216 * column, y, 196, head, *lines)
    for column in range(2):
        picture.path(f"M{200 + 216 * column} 54H{218 + 216 * column}", has_arrow=True)
        picture.path(f"M{220 + 216 * column} 182H{202 + 216 * column}", has_arrow=True)
    picture.path("M534 98V136", has_arrow=True)
    picture.path("M102 226V264", has_arrow=True)
    picture.card(4, 266, 304, "7  Batches", "delivered in order, each as soon as", "all of its slots are filled")
    picture.card(436, 266, 196, "8  Your training loop", "arrays or tensors over", "the batch's memory")
    picture.path("M308 304H434", has_arrow=True)
    picture.text(372, 294, "for batch in", "mono", anchor="middle")
    picture.text(372, 324, "loader", "mono", anchor="middle")
    return picture


def carousel() -> Picture:
    """Draw a node that produces segments in rounds, and three jobs that take them."""
    count, made = 12, 7
    picture = Picture(330, "A node produces segments in rounds; each job takes every segment once per epoch")
    centre, radius = (160.0, 168.0), 112.0
    for number in range(count):
        angle = 2 * math.pi * (number / count) - math.pi / 2
        x, y = centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)
        kind = "main" if number == made else "soft" if made - 4 <= number < made else "none"
        picture.box(x - 21, y - 17, 42, 34, kind, 5)
        picture.text(x, y + 5, str(number), *(["on"] if number == made else []), anchor="middle")
    picture.text(centre[0], centre[1] - 14, "the node", "head", anchor="middle")
    picture.text(centre[0], centre[1] + 6, "produces segment 7;", "small", anchor="middle")
    picture.text(centre[0], centre[1] + 24, "3 to 6 are in memory", "small", anchor="middle")
    jobs = [
        ("Job A, fast", "has all but 7 to 9: takes 7 next", {*range(count)} - {7, 8, 9}),
        ("Job B, slow", "has 1 to 4: takes 5 next, 6 after it", {1, 2, 3, 4}),
        ("Job C, started late", "has 5 and 6: takes 3 and 4 next", {5, 6}),
    ]
    for row, (name, words, taken) in enumerate(jobs):
        y = 28 + 100 * row
        picture.text(312, y, name, "head")
        picture.text(312, y + 20, words, "small")
        for number in range(count):
            picture.box(312 + 27 * number, y + 32, 23, 23, "soft" if number in taken else "none", 3)
            picture.text(323.5 + 27 * number, y + 48, str(number), "small", anchor="middle")
    picture.text(312, 322, "filled: received in this epoch of the job", "small")
    return picture


def seek_index() -> Picture:
    """Draw the parts of a JPEG that a crop needs."""
    columns, rows, every, side = 24, 12, 4, 14
    crop = (9, 3, 8, 5)
    picture = Picture(336, "Of a JPEG file only the groups of blocks that the crop touches are read and decoded")
    picture.text(0, 16, "The picture, in blocks (MCUs)", "head")
    read: list[bool] = []
    for row in range(rows):
        for group in range(columns // every):
            touches = crop[1] <= row < crop[1] + crop[3]
            touches &= group * every < crop[0] + crop[2] and (group + 1) * every > crop[0]
            read.append(touches)
            for column in range(group * every, (group + 1) * every):
                picture.box(side * column, 28 + side * row, side, side, "soft" if touches else "grid", 0)
            picture.path(f"M{side * every * group} {28 + side * row}v{side}", "line")
    picture.box(side * crop[0], 28 + side * crop[1], side * crop[2], side * crop[3], "crop", 0)
    right = side * columns + 22
    picture.text(right, 50, "red: the random crop", "small")
    picture.text(right, 72, "blue: groups that are read and decoded", "small")
    picture.text(right, 94, "grey: neither read nor decoded", "small")
    picture.text(right, 130, "The index says for each group", "small")
    picture.text(right, 150, "at which bit of the file it begins,", "small")
    picture.text(right, 170, "and the brightness and colours", "small")
    picture.text(right, 190, "that its first block builds on.", "small")
    picture.text(0, 232, "The file, from its first to its last byte", "head")
    width = WIDTH / len(read)
    for number, touches in enumerate(read):
        picture.box(width * number, 244, width - 0.6, 34, "soft" if touches else "grid", 0)
    share = sum(read)
    picture.text(0, 302, f"This crop covers {crop[2] * crop[3]} of {columns * rows} blocks.", "small")
    picture.text(0, 322, f"Feedline decodes {share} of {len(read)} groups: {share * every} blocks.", "small")
    return picture


def doctor() -> Picture:
    """Draw the page of the doctor for a job that it examined."""
    found = json.loads((IMAGES / "doctor.json").read_text())
    picture = Picture(476, "The page of the doctor: verdict, parts, remedies, the time of each batch")
    picture.box(0.5, 0.5, WIDTH - 1, 475, "box", 8)
    picture.text(20, 32, "Bound by preparing", "head")
    waited, shown = 100 * found["stall_share"], 100 * found["utilisation_sampled"]
    words = f"the accelerator waited {waited:.1f} % of the time; a utilisation sampler would show {shown:.0f} %"
    picture.text(20, 54, words, "small")
    picture.text(20, 88, "Each part alone, samples/s", "head")
    rates = found["samples_per_second"]
    most = max(rate for name, rate in rates.items() if name != "read")
    for row, (name, rate) in enumerate(rates.items()):
        y = 100 + 24 * row
        width = 330 * min(rate / most, 1.12)
        kind = {"predicted": "warm", "measured": "green"}.get(name, "main")
        picture.text(20, y + 13, name, "small")
        picture.box(170, y, width, 15, kind)
        picture.text(176 + width, y + 13, f"{rate:.0f}" + (" ..." if rate > most else ""), "small")
    picture.text(20, 278, "What would help", "head")
    for row, (change, rate, gain) in enumerate(found["remedies"]):
        picture.text(20, 300 + 22 * row, change, "mono")
        picture.text(620, 300 + 22 * row, f"{rate:.0f} samples/s, {100 * gain:+.0f} %", "small", anchor="end")
    picture.text(20, 360, "The time of each batch", "head")
    for place, (name, kind) in enumerate((("wait", "red"), ("step", "green"))):
        picture.box(240 + 70 * place, 349, 12, 12, kind)
        picture.text(257 + 70 * place, 360, name, "small")
    longest = max(wait + step for wait, step in found["batches_ms"])
    for number, (wait, step) in enumerate(found["batches_ms"]):
        x, wait_height, step_height = 20 + 10 * number, 86 * wait / longest, 86 * step / longest
        picture.box(x, 456 - step_height, 8, step_height, "green", 0)
        picture.box(x, 456 - step_height - wait_height, 8, wait_height, "red", 0)
    return picture


PICTURES = {
    "race": race,
    "path-of-a-sample": path_of_a_sample,
    "carousel": carousel,
    "seek-index": seek_index,
    "doctor": doctor,
}


def main() -> None:
    """Write the pictures, or with `--check` name those that are out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    for name, draw in PICTURES.items():
        path, text = IMAGES / f"{name}.svg", str(draw())
        if not is_check:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            sys.exit(f"{path.relative_to(ROOT)} is not what tools/docs/pictures.py draws: run it and commit the result")


if __name__ == "__main__":
    main()
