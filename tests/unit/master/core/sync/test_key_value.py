"""The key-value store and the barriers of one round, compared with simple models."""

from __future__ import annotations

import pytest
from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent
from elasticjob_master.core.sync import key_value
from elasticjob_master.core.sync.barrier import MOST_BARRIERS, MOST_WAITING, Barriers
from elasticjob_master.core.sync.key_value import KeyValueStore
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

KEYS = st.sampled_from(["a", "b", "ü"])
VALUES = st.binary(max_size=3)


class Values(RuleBasedStateMachine):
    """Any history of requests: a restarted store and a plain dict agree with it at every moment."""

    def __init__(self) -> None:
        super().__init__()
        self.store = KeyValueStore()
        self.model: dict[str, bytes] = {}
        self.sums: dict[str, int] = {}

    @rule(key=KEYS, value=VALUES)
    def set(self, key: str, value: bytes) -> None:
        assert self.store.set(key, value) == value
        self.model[key] = value

    @rule(key=KEYS, value=VALUES, expected=VALUES)
    def set_if_expected(self, key: str, value: bytes, expected: bytes) -> None:
        if self.model.get(key) == expected:
            self.model[key] = value
        assert self.store.set(key, value, expected=expected) == self.model.get(key)

    @rule(key=KEYS, value=VALUES)
    def set_if_absent(self, key: str, value: bytes) -> None:
        assert self.store.set(key, value, if_absent=True) == self.model.setdefault(key, value)

    @rule(
        key=KEYS,
        amount=st.integers(-(2**40), 2**40),
        request=st.sampled_from(["", "r1", "r2", "r3"]),
    )
    def add(self, key: str, amount: int, request: str) -> None:
        if request in self.sums:
            assert self.store.add(key, amount, request) == self.sums[request], (
                "a repeated request adds nothing"
            )
            return
        try:
            total = int(self.model.get(key, b"0")) + amount
        except ValueError:
            with pytest.raises(BadRequest, match="whole number"):
                self.store.add(key, amount, request)
            return
        assert self.store.add(key, amount, request) == total
        self.model[key] = str(total).encode()
        if request:
            self.sums[request] = total

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        assert self.store.delete(key) == (self.model.pop(key, None) is not None)

    @rule()
    def restart(self) -> None:
        again = KeyValueStore()
        again.begin_round(self.store.round, self.store.values, self.store.addition_results)
        self.store = again

    @rule()
    def next_round(self) -> None:
        self.store.begin_round(self.store.round + 1)
        self.model = {}
        self.sums = {}

    @invariant()
    def all_is_there_and_nothing_else(self) -> None:
        assert self.store.values == self.model
        for key in ("a", "b", "ü"):
            assert (self.store.first_missing([key]) is None) == (key in self.model)


TestValues = Values.TestCase


def test_every_bound_is_refused_by_name_and_changes_nothing() -> None:
    store = KeyValueStore()
    for request, message in (
        (lambda: store.set("", b""), "key has 0 characters; it must have 1 to 128"),
        (lambda: store.set("k" * 129, b""), "key has 129 characters"),
        (
            lambda: store.set("k", bytes(key_value.LONGEST_VALUE + 1)),
            "65537 bytes; it must have at most 65536",
        ),
        (lambda: store.add("k", 1, "r" * 129), "request_id has 129 characters"),
        (lambda: store.delete(""), "key has 0"),
        (lambda: key_value.check_keys([]), "keys has 0 entries; it must have 1 to 1024"),
        (lambda: key_value.check_keys(["a"] * 2), "twice"),
        (lambda: key_value.check_keys([str(n) for n in range(1025)]), "keys has 1025 entries"),
    ):
        with pytest.raises(BadRequest, match=message):
            request()
    assert store.values == {}


def test_the_store_is_bounded_in_keys_and_bytes_and_has_room_again_after_a_delete() -> None:
    store = KeyValueStore()
    for number in range(key_value.MOST_KEYS):
        store.set(f"{number}", b"")
    with pytest.raises(LimitReached, match="4096 keys already; key 'more' is one too many"):
        store.set("more", b"")
    store.begin_round(1)
    for name in ("a", "b", "c"):
        store.set(name, bytes(key_value.LONGEST_VALUE))
    store.set("d", bytes(key_value.LONGEST_VALUE - 4))
    with pytest.raises(LimitReached, match="bytes; the bound is 262144"):
        store.set("e", b"")
    assert store.delete("a")
    store.set("e", bytes(key_value.LONGEST_VALUE))


def test_a_sum_beyond_64_bits_is_refused() -> None:
    store = KeyValueStore()
    store.set("n", str(2**63 - 1).encode())
    with pytest.raises(BadRequest, match="it must be at most 9223372036854775807"):
        store.add("n", 1, "")


def test_answers_to_additions_are_bounded() -> None:
    store = KeyValueStore()
    for number in range(key_value.MOST_ANSWERS + 10):
        store.add("n", 1, f"r{number}")
    assert len(store.addition_results) == key_value.MOST_ANSWERS


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
def test_no_member_passes_a_barrier_before_all_have_arrived_as_often(
    size: int, calls: list[tuple[int, bool]]
) -> None:
    world = [f"u{n}" for n in range(size)]
    barriers = Barriers()
    uses = dict.fromkeys(world, 0)
    came = dict.fromkeys(world, 0)
    for caller, restart in calls:
        if restart:  # of the master: who waits calls again
            again = Barriers()
            again.begin_round(barriers.passed)
            barriers = again
            passed_by_all = min(came.values())
            came = {uid: min(count, passed_by_all) for uid, count in came.items()}
        uid = world[caller % size]
        came[uid] = max(came[uid], uses[uid] + 1)
        passed = barriers.arrive("b", uses[uid], uid, world)
        assert passed == all(count > uses[uid] for count in came.values())
        if passed:
            uses[uid] += 1
            assert barriers.arrive("b", uses[uid] - 1, uid, world), (
                "a repeated request does not wait again"
            )


@given(
    st.integers(2, 4),
    st.lists(
        st.tuples(st.sampled_from(["arrive", "end", "decide"]), st.integers(0, 3)), max_size=40
    ),
)
def test_a_use_of_a_barrier_is_passed_by_all_or_given_up_for_all(
    size: int, actions: list[tuple[str, int]]
) -> None:
    world = [f"u{n}" for n in range(size)]
    barriers = Barriers()
    uses = dict.fromkeys(world, 0)
    ended: dict[str, str] = {}
    given_up: int | None = None
    for action, number in actions:
        uid = world[number % size]
        if action == "end":
            ended[uid] = f"pod-{uid}"
        elif action == "decide":
            if barriers.give_up(ended):
                given_up = barriers.passed.get("b", 0)
        elif uid not in ended:
            if uses[uid] == given_up:
                with pytest.raises(NotCurrent):
                    barriers.arrive("b", uses[uid], uid, world)
            else:
                uses[uid] += barriers.arrive("b", uses[uid], uid, world)
    if given_up is not None:
        assert barriers.passed.get("b", 0) == given_up, "it was passed after it was given up"
        assert not barriers.waited_for


def test_a_barrier_is_given_up_only_for_a_member_that_has_not_arrived() -> None:
    barriers = Barriers()
    world = ["u0", "u1", "u2"]
    barriers.arrive("b", 0, "u0", world)
    assert barriers.give_up({"u0": "pod-0"}) == []
    assert barriers.give_up({"u0": "pod-0", "u1": "pod-1"}) == ["b"]
    message = "barrier 'b' cannot be passed: 1 of the processes .* have ended, such as .* pod-1"
    with pytest.raises(NotCurrent, match=message):
        barriers.arrive("b", 0, "u2", world)
    barriers.begin_round()
    assert not barriers.arrive("b", 0, "u2", world)


def test_the_members_that_a_barrier_waits_for_are_known() -> None:
    barriers = Barriers()
    barriers.arrive("b", 0, "u0", ["u0", "u1", "u2"])
    assert barriers.absent("b", ["u0", "u1", "u2"]) == ["u1", "u2"]


def test_barriers_are_bounded() -> None:
    barriers = Barriers()
    world = ["u0", "u1"]
    for number in range(MOST_WAITING):
        barriers.arrive(f"w{number}", 0, "u0", world)
    with pytest.raises(
        LimitReached, match="64 barriers are waited at already; 'x' is one too many"
    ):
        barriers.arrive("x", 0, "u0", world)
    barriers.begin_round()
    for number in range(MOST_BARRIERS):
        barriers.arrive(f"{number}", 0, "u0", ["u0"])
    with pytest.raises(LimitReached, match="1024 barriers already"):
        barriers.arrive("x", 0, "u0", ["u0"])
    assert barriers.arrive("7", 1, "u0", ["u0"]), "a known one can be used as often as one likes"
    for name, number, message in (
        ("", 0, "name has 0"),
        ("n" * 129, 0, "name has 129"),
        ("y", 2, "was passed 0 times"),
    ):
        with pytest.raises(BadRequest, match=message):
            barriers.arrive(name, number, "u0", ["u0"])
