"""A change of the world by role: which processes are kept, and in which order others stop."""

from __future__ import annotations

import pytest
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.refusals import NotCurrent
from elasticjob_master.core.rendezvous.commands import Command, Drain, Start, Stop
from elasticjob_master.core.rendezvous.current_process import check_current
from elasticjob_master.core.rendezvous.rules import RoleSize, Rules
from hypothesis import given
from hypothesis import strategies as st

from tests.support.master.changed_settings import changed_settings
from tests.support.master.simulated_agents import SimulatedRendezvous

SIZES = {"chief": RoleSize(1, 1), "worker": RoleSize(1, 3), "ps": RoleSize(1, 2, kept=True)}


class Job(SimulatedRendezvous):
    """A TensorFlow job with parameter servers, and the order in which processes were stopped."""

    def __init__(self, *, workers: int = 2) -> None:
        rules = Rules(deciding_role="chief", stop_order=FRAMEWORKS["tensorflow"].stop_order)
        super().__init__(rules=rules)
        self.apply(changed_settings(self.rendezvous, sizes=SIZES))
        self.stopped: list[str] = []
        self.chief = self.join(0, "chief")
        self.ps = [self.join(index, "ps") for index in range(2)]
        self.workers = [self.join(index) for index in range(workers)]
        self.run_until_quiet()

    def check(self, command: Command) -> None:
        super().check(command)
        if isinstance(command, Stop | Drain):
            agent = self.agents[command.uid]
            chief_runs = self.ordered and self.chief.connected and self.chief.running
            if (
                agent.running == self.rendezvous.round or agent in self.ps
            ):  # an earlier process of a worker is over
                assert agent is self.chief or not agent.running or not chief_runs, agent.identity
            self.stopped.append(command.uid)

    @property
    def ordered(self) -> bool:
        return self.rendezvous.phase == "reforming" and not self.rendezvous.stop_without_grace


@pytest.mark.guarantee("kept-processes")
def test_a_worker_more_does_not_touch_the_parameter_servers() -> None:
    job = Job()
    job.join(2)
    job.run_until_quiet()
    assert job.rendezvous.round == 2
    assert [agent.starts for agent in job.ps] == [[1], [1]]
    assert [agent.starts for agent in (job.chief, *job.workers)] == [[1, 2]] * 3
    assert len(job.rendezvous.world) == 6, "they belong to the new world all the same"


@pytest.mark.guarantee("kept-process-in-later-rounds")
def test_a_barrier_waits_for_the_processes_started_in_its_round() -> None:
    job = Job()
    assert set(job.rendezvous.barrier_uids()) == set(job.rendezvous.world), (
        "the first world: all are"
    )
    job.join(2)
    job.run_until_quiet()
    kept = {agent.identity.pod_uid for agent in job.ps}
    assert set(job.rendezvous.barrier_uids()) == set(job.rendezvous.world) - kept
    job.end_process(job.ps[0], 1, asked=False, retry=True)
    job.run_until_quiet()
    assert job.ps[0].starts == [1, 3], "it is started again by the master alone"
    assert set(job.rendezvous.barrier_uids()) == set(job.rendezvous.world) - {
        job.ps[1].identity.pod_uid
    }


@pytest.mark.guarantee("kept-process-in-later-rounds")
def test_the_start_of_a_kept_process_says_that_it_continues() -> None:
    job = Job(workers=0)
    starts: list[Start] = []
    job.check = lambda command: starts.append(command) if isinstance(command, Start) else None  # type: ignore[method-assign]
    job.join(0)
    job.join(2, "ps")
    job.run_until_quiet()
    servers = {f"ps-{index}.0": True for index in range(3)}
    assert {start.uid: start.continues for start in starts} == {
        "chief-0.0": False,
        "0.0": False,
        **servers,
    }


@pytest.mark.guarantee("kept-processes")
def test_the_chief_is_stopped_first_as_it_saves_what_the_others_hold() -> None:
    job = Job()
    job.join(2)
    for _ in range(40):
        job.advance(0.25)
    assert job.stopped == [job.chief.identity.pod_uid]
    job.run_until_quiet()
    assert job.stopped[1:] == [worker.identity.pod_uid for worker in job.workers]


@pytest.mark.guarantee("kept-processes")
def test_a_parameter_server_that_leaves_does_so_after_all_that_use_it() -> None:
    job = Job()
    job.drain(job.ps[0])
    assert job.stopped == [job.chief.identity.pod_uid]
    job.run_until_quiet()
    assert job.stopped == [agent.identity.pod_uid for agent in (job.chief, *job.workers, job.ps[0])]
    assert job.ps[0].ended
    assert job.ps[1].starts == [1]


def test_no_process_waits_for_others_to_stop_in_a_failed_world() -> None:
    job = Job()
    job.kill(job.ps[0])
    job.advance(11.0)  # its agent is lost
    assert set(job.stopped) == {agent.identity.pod_uid for agent in (job.chief, *job.workers)}
    job.join(0, "ps")
    job.run_until_quiet()
    assert job.rendezvous.phase == "training"
    assert job.ps[1].starts == [1]


def test_a_kept_process_is_current_in_every_later_world_and_a_stopped_one_is_not() -> None:
    job = Job()
    job.join(2)
    job.run_until_quiet()
    assert check_current(job.rendezvous, job.ps[0].identity.pod_uid, 1).process_round == 1
    with pytest.raises(NotCurrent):
        check_current(job.rendezvous, job.chief.identity.pod_uid, 1)


def test_a_kept_process_that_was_cut_off_while_the_world_changed_continues() -> None:
    job = Job()
    job.disconnect(job.ps[0])
    job.join(2)
    for _ in range(20):
        job.advance(0.25)
        job.handle_all()
    assert job.ps[0].identity.pod_uid not in job.rendezvous.world
    job.connect(job.ps[0])
    job.run_until_quiet()
    assert job.ps[0].starts == [1]
    assert job.ps[0].identity.pod_uid in job.rendezvous.world


@pytest.mark.guarantee("kept-processes")
def test_a_role_that_is_no_longer_kept_runs_until_the_next_change_and_stops_in_its_turn() -> None:
    job = Job()
    job.join(2)
    job.run_until_quiet()
    job.rendezvous.sizes = {
        **SIZES,
        "ps": RoleSize(1, 2),
    }  # edited, or by the default of a newer version
    job.stopped.clear()
    job.run_until_quiet()
    assert not job.stopped, "its process holds what the present world trains"
    job.drain(job.workers[0])
    assert job.stopped == [job.chief.identity.pod_uid]
    job.run_until_quiet()
    assert set(job.stopped[-2:]) == {agent.identity.pod_uid for agent in job.ps}, (
        "after the workers"
    )
    assert [agent.starts for agent in job.ps] == [[1, 3], [1, 3]]


EVENTS = ("join", "drain", "kill", "disconnect", "crash", "time")


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=12))
def test_after_any_history_all_train_in_one_world_and_servers_were_started_once(
    history: list[tuple[str, int]],
) -> None:
    job = Job()
    for event, number in history:
        agents = job.alive()
        agent = agents[number % len(agents)] if agents else None
        if event == "join" and not any(
            a.identity.role == "worker" and a.identity.index == number for a in agents
        ):
            job.join(number)
        elif agent is None or agent is job.chief:
            pass
        elif event == "drain":
            job.drain(agent)
        elif event in ("kill", "disconnect", "crash"):
            job.fail(event, agent, retry=bool(number % 2))
        job.advance(1.0 if event == "time" else 0.1)
        job.handle_all()
    job.run_until_quiet()  # who drains has left
    for index in range(2):
        if not any((a.identity.role, a.identity.index) == ("ps", index) for a in job.alive()):
            job.join(index, "ps")
    if not any(a.identity.role == "worker" for a in job.alive()):
        job.join(0)
    if job.chief.ended:
        job.chief = job.join(0, "chief")
    job.run_until_quiet()
    now = job.rendezvous
    assert now.phase == "training", now.phase
    alive = {agent.identity.pod_uid for agent in job.alive()}
    assert set(now.world) == alive
    for agent in job.alive():
        assert agent.running == now.round or agent.identity.role == "ps"
        assert agent.running
