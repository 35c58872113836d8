"""A world begins at the newest checkpoint that its members hold together."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from elasticjob._state_choice import MAX_MEMBERS, Choice, Held, Inventory, decode, encode, newest
from hypothesis import given

NAMES = [f"checkpoint-0000-{round_:010}-{step:012}-000001" for round_ in (1, 2) for step in (3, 4)]


@st.composite
def inventories(draw: st.DrawFn) -> list[Inventory]:
    parts = {name: draw(st.integers(1, 4)) for name in NAMES}

    def held(name: str) -> st.SearchStrategy[Held]:
        whole = st.frozensets(st.integers(0, parts[name] - 1))
        return st.builds(Held, st.just(parts[name]), whole, st.booleans())

    def checkpoints() -> dict[str, Held]:
        chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
        return {name: draw(held(name)) for name in chosen}

    members = range(draw(st.integers(1, 4)))
    address = st.sampled_from([None, "10.0.0.1:5000", "10.0.0.2:5000"])
    return [Inventory(draw(address), checkpoints()) for _ in members]


def all_can_have(name: str, members: list[Inventory]) -> bool:
    """Return whether every member has or can fetch all parts of a complete checkpoint."""
    held = [member.checkpoints.get(name) for member in members]
    known = [each for each in held if each is not None]
    if not any(each.complete for each in known):
        return False
    return all(
        all(
            (here is not None and part in here.whole)
            or any(
                other is not None and part in other.whole and member.address
                for other, member in zip(held, members, strict=True)
            )
            for here in held
        )
        for part in range(known[0].parts)
    )


@pytest.mark.guarantee("state-in-memory")
@given(inventories(), st.sampled_from(["", *NAMES]))
def test_the_newest_checkpoint_that_all_members_can_have_is_chosen(
    members: list[Inventory], stored: str
) -> None:
    choice = newest(members, after=stored)
    possible = [name for name in NAMES if name > stored and all_can_have(name, members)]
    assert (choice.name if choice else None) == max(possible, default=None)
    if choice is None:
        return
    for part, source in enumerate(choice.sources):
        assert part in members[source].checkpoints[choice.name].whole
    everyone = [member.checkpoints.get(choice.name) for member in members]
    missing = any(held is None or len(held.whole) < held.parts for held in everyone)
    assert choice.fetch == missing


@given(inventories())
def test_an_inventory_is_sent_as_it_is(members: list[Inventory]) -> None:
    assert [decode(encode(each)) for each in members] == members


def test_members_that_disagree_on_the_number_of_parts_hold_nothing_together() -> None:
    whole = frozenset({0})
    members = [
        Inventory("a:1", {NAMES[0]: Held(1, whole, complete=True), NAMES[1]: Held(1, whole, True)}),
        Inventory("b:1", {NAMES[1]: Held(2, frozenset({1}), complete=True)}),
    ]
    assert newest(members, after="") == Choice(NAMES[0], (0,), fetch=True)


def test_the_inventories_of_the_largest_world_fit_into_the_masters_values() -> None:
    held = Held(1024, frozenset(range(1024)), complete=True)
    inventory = Inventory(
        "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535", dict.fromkeys(NAMES, held)
    )
    assert MAX_MEMBERS * len(encode(inventory)) < 256 * 1024
