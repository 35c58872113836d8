"""A world begins at the newest checkpoint that its members hold together."""

from __future__ import annotations

import json
import random
from collections import Counter

import hypothesis.strategies as st
import pytest
from elasticjob._state import _start
from elasticjob._state_choice import (
    CHILDREN,
    EMPTY,
    Choice,
    Held,
    Inventory,
    decode,
    encode,
    newest,
    source,
)
from elasticjob_api.limits import MAX_CHECKPOINT_PARTS
from elasticjob_master.core.sync.key_value import KeyValueStore, check_keys
from hypothesis import given

NAMES = [f"checkpoint-0000-{round_:010}-{step:012}-000001" for round_ in (1, 2) for step in (3, 4)]


@st.composite
def inventories(draw: st.DrawFn) -> list[Inventory]:
    parts = {name: draw(st.integers(1, 4)) for name in NAMES}
    empty = {name: draw(st.frozensets(st.integers(0, parts[name] - 1))) for name in NAMES}

    def held(name: str) -> st.SearchStrategy[Held]:
        whole = st.frozensets(st.integers(0, parts[name] - 1))
        return st.builds(
            lambda whole, complete: Held(parts[name], whole, complete, whole & empty[name]),
            whole,
            st.booleans(),
        )

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
                other is not None
                and part in other.whole
                and (member.address or part in other.empty)
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
    for part, holder in enumerate(choice.sources):
        held = [each.checkpoints.get(choice.name) for each in members]
        if holder == EMPTY:
            assert any(each is not None and part in each.empty for each in held)
        else:
            assert part in members[holder].checkpoints[choice.name].whole
    everyone = [member.checkpoints.get(choice.name) for member in members]
    missing = any(held is None or len(held.whole) < held.parts for held in everyone)
    assert choice.fetch == missing


@given(inventories())
def test_an_inventory_is_sent_as_it_is(members: list[Inventory]) -> None:
    assert [decode(encode(each, members=4)) for each in members] == members


def test_members_that_disagree_on_the_number_of_parts_hold_nothing_together() -> None:
    whole = frozenset({0})
    members = [
        Inventory("a:1", {NAMES[0]: Held(1, whole, complete=True), NAMES[1]: Held(1, whole, True)}),
        Inventory("b:1", {NAMES[1]: Held(2, frozenset({1}), complete=True)}),
    ]
    assert newest(members, after="") == Choice(NAMES[0], (0,), fetch=True)


@given(st.lists(st.booleans(), min_size=1, max_size=MAX_CHECKPOINT_PARTS), st.integers(min_value=0))
def test_every_member_gets_a_part_in_few_steps_from_one_that_has_it(
    gives: list[bool], chosen: int
) -> None:
    holder = chosen % len(gives)
    gives[holder] = True
    addresses = ["a:1" if given else None for given in gives]
    children = Counter[int]()
    for position in range(len(gives)):
        if position != holder:
            children[source(position, holder, addresses)] += 1
        steps = 0
        while position != holder:
            position = source(position, holder, addresses)
            assert addresses[position]
            steps += 1
        assert steps <= 4
    if all(gives):
        assert max(children.values(), default=0) <= CHILDREN


@pytest.mark.parametrize("divided", [False, True])
def test_the_largest_world_keeps_its_checkpoints_within_the_masters_values(divided: bool) -> None:
    parts = MAX_CHECKPOINT_PARTS
    everything = frozenset(range(parts))
    names = [f"checkpoint-0003-{1234:010}-{123_456 + 500 * n:012}-{17 + n:06}" for n in range(3)]
    store = KeyValueStore()
    keys = [f"elasticjob/state/0123456789abcdef/{10**9}-0/held/{n}" for n in range(parts)]
    check_keys(keys)
    chance = random.Random(1)
    inventories = []
    for position, key in enumerate(keys):
        groups = ":".join(f"{chance.randrange(4096, 65536):x}" for _ in range(6))
        whole = [everything, *2 * [frozenset({position, (position - 8) % parts})]]
        held = {
            name: Held(parts, each, complete=True, empty=frozenset() if divided else each - {0})
            for name, each in zip(names, whole, strict=True)
        }
        address = f"[2001:db8:{groups}]:{chance.randrange(32768, 65536)}"
        inventories.append(Inventory(address, held))
        store.set(key, encode(inventories[-1], members=parts))
    assert [decode(value) for value in store.get_all(keys)] == inventories
    start = _start(inventories, lambda _known: (0, ""))
    assert start["name"] == names[-1]
    store.set("elasticjob/state/0123456789abcdef/1000000000-0/start", json.dumps(start).encode())


def test_an_inventory_that_is_too_large_leaves_old_checkpoints_out() -> None:
    chance = random.Random(1)
    fragments = frozenset(part for part in range(MAX_CHECKPOINT_PARTS) if chance.random() < 0.5)
    few = Held(MAX_CHECKPOINT_PARTS, frozenset({1}), complete=True)
    many = Held(MAX_CHECKPOINT_PARTS, fragments, complete=True)
    inventory = Inventory("10.0.0.1:50000", {NAMES[0]: many, NAMES[1]: few})
    assert decode(encode(inventory, members=128)) == inventory
    small = decode(encode(inventory, members=MAX_CHECKPOINT_PARTS))
    assert small == Inventory("10.0.0.1:50000", {NAMES[1]: few})
    inventory = Inventory("10.0.0.1:50000", {NAMES[1]: many})
    assert decode(encode(inventory, members=MAX_CHECKPOINT_PARTS)).checkpoints == {}
