"""Makes a loader of a plan again: from a pickle, or over a new listing of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from feedline.placement import Placement
from feedline.plan import Plan
from feedline.sharing import Share

if TYPE_CHECKING:
    from feedline.loader import Loader


def restored(
    plan: Plan, placement: Placement | None, framework: Literal["numpy", "torch"], share: Share | None, state: Any
) -> Loader:
    """Return a loader for a plan, at a state if one is given."""
    from feedline.loader import Loader

    rank, world_size = (None, None) if placement is None else placement
    loader = Loader.from_plan(plan, rank=rank, world_size=world_size, framework=framework, share=share or False)
    if state is not None:
        loader.load_state_dict(state)
    return loader
