"""The accuracy benchmark: the trained net is a function of the seed and the order, and the verdict follows its rule."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from bench.accuracy import __main__ as accuracy  # noqa: E402
from bench.accuracy import data, net  # noqa: E402
from bench.accuracy.__main__ import Trained  # noqa: E402


def test_one_seed_gives_one_net_and_planned_order_gives_other_batches_of_the_same_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEEDLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(accuracy, "CASES", 16)
    data.write(tmp_path / "volumes", 16, seed=0)
    images, labels = (torch.from_numpy(array) for array in data.held_out(2, seed=1))

    def train(order: str) -> Trained:
        return accuracy._train(tmp_path / "volumes", order, seed=3, epochs=1, images=images, labels=labels)

    strict = train("strict")
    assert train("strict") == strict
    assert train("planned").batches != strict.batches


def test_dice_is_one_where_all_is_found_and_zero_where_nothing_is() -> None:
    images, labels = (torch.from_numpy(array) for array in data.held_out(2, seed=1))

    class Knows(net.UNet):
        def forward(self, volume: torch.Tensor) -> torch.Tensor:
            number = next(place for place, image in enumerate(images) if torch.equal(image, volume[0]))
            return torch.nn.functional.one_hot(labels[number].long(), net.CLASSES).movedim(-1, 0)[None]

    class SeesNothing(net.UNet):
        def forward(self, volume: torch.Tensor) -> torch.Tensor:
            return torch.cat([volume * 0 + 1, volume * 0, volume * 0], 1)

    assert net.dice(Knows(), images, labels) == 1
    assert net.dice(SeesNothing(), images, labels) == 0


@pytest.mark.parametrize(
    ("strict", "planned", "is_same"),
    [
        ((0.90, 0.90), (0.905, 0.905), True),
        ((0.90, 0.90), (0.88, 0.88), False),
        ((0.86, 0.94), (0.88, 0.88), True),
    ],
)
def test_an_order_is_as_good_within_a_point_or_the_standard_error_of_strict(
    strict: tuple[float, ...], planned: tuple[float, ...], is_same: bool
) -> None:
    one, other = [frozenset({0, 1}), frozenset({2, 3})], [frozenset({0, 2}), frozenset({1, 3})]
    trained = {"strict": [Trained(dice, one) for dice in strict], "planned": [Trained(dice, other) for dice in planned]}
    found = accuracy._summary(trained)["planned"]
    assert found["is_same"] is is_same
    assert found["differing_batches"] == 1
