"""Every constant of the auto-scaler's rules.

Those of the model and of the search were chosen by simulations (`bench/autoscaling.py`), in worlds
other than those that the figures are measured in. What can be derived from another one is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """The constants, with their units. A "part" is a number from 0 to 1.

    Attributes:
        warm_up: part of a world's first window that is left out: compilation and the first steps.
        early_steps: steps after which a window is of use before its end.
        piece: part of a window whose own rate is looked at, and the pause between two decisions
            before its end; the first of them comes after two pieces.
        sample_seconds: seconds between two samples of CPU and memory, or a piece if that is less.
        pieces: the number of such pieces that show how much the rate varies.
        related_pieces: a factor: consecutive pieces are alike, so their mean varies more.
        noises: multiple of the noise that is no noise.
        least_windows: windows that a size is measured to settle or to judge a trial, at least.
        most_windows: the same at most, the windows that a mean has, and those for which a gain
            must last to be one for good.
        slower_windows: windows for which a loss must last: by waiting only members are lost.
        change: relative difference of a throughput that is another one.
        doublings: the most times that a wait doubles which was of no use.
        stored: sizes, and costs of rescales, that are remembered.
        unknown_rescale_seconds: seconds that a rescale costs before one is measured.
        hour: seconds that remain if the training does not report its length, that a plan for CPU
            and memory waits after one that failed, and that a role's use must be known to lower it.
        missing_seconds: seconds that members may be missing while the others train.
        pause_seconds: seconds until pods are requested again that could not be had; it doubles.
        nearly_used_up: part of CPU or memory in use from which on there may be too little.
        worthwhile: relative gain of throughput for which servers keep more CPU, or become more, and
            of CPU or memory that is worth a plan.
        reserve: factor from the used memory to that which is requested, from the used CPU to that
            which is left by lowering it, and by which a job must grow to try the same again.
        cpu_reserve: factor from the mean use of CPU to the first request.
        least_memory: bytes of a member at least; memory is rounded to a quarter of it.
        memory_waits: multiple of an hour, and of the time in which the peak was reached, that
            memory is known before it is lowered.
        resources_cost: part of the remaining time that a change of CPU or memory may cost.
        noticeable: relative difference that is hard to see: the deviation of a window before any was
            repeated, the growth of a peak that is stored, the part of an average member that a
            further one must add for Throughput, and by which it may add less for Efficiency.
        deadline_member: the same for Deadline, where a member that is not needed is lost.
        as_cheap: part of its price that a member must add for Cost: at nearly the same, faster.
        deadline_reserve: part by which a rate must exceed the needed one: a slower hour.
        tolerance: part of a rate that is too small to measure.
        far_less: part of the rate that must be enough for the finish time to try fewer members.
        shapes: number of shapes of the model: fewer know too few forms, more take too long.
        roughness: prior probability of each roughness, with the relative deviation from the shape
            of a size on its own, and of one together with its neighbours.
        neighbourhood: natural logarithm of the ratio of two sizes that are neighbours.
        tails: degrees of freedom of the likelihood; with fewer, poor fits are doubted less.
        least_noise: relative deviation of a window at least: few reports seem to have none.
        age_error: relative error of a rate for each hour since it was measured.
        negligible: likelihood, relative to the best shape's, below which a shape is dropped.
        search_plans: plans of a search; half of it if a change, a look or a finish time begins it.
        search_returns: further plans of a search that go back to a measured size.
        horizon_seconds: seconds in which a gain counts at most: later all may be different.
        trial_part: part of a window that a trial which fails takes.
        least_gain: relative gain that no trial is made for, and the part of the time at rest that
            a look may cost.
        largest_step: multiple of the largest measured size that may be tried.
        surely: likelihood of being worse with which a size is left in the middle of a window.
        clear_error: error of the present size, relative to the difference that a trial may show,
            below which the trial is made.
        tie: relative worth that a larger size may have less and still be preferred.
        tie_slope: the same for each natural logarithm of the ratio of the sizes.
        exact: relative error of the mean with which a size settles.
    """

    warm_up: float = 0.2
    early_steps: int = 10
    piece: float = 1 / 15
    sample_seconds: float = 15.0
    pieces: int = 4
    related_pieces: float = 1.5
    noises: float = 4.0
    least_windows: float = 2.0
    most_windows: float = 6.0
    slower_windows: float = 72.0
    change: float = 0.15
    doublings: int = 5
    stored: int = 16
    unknown_rescale_seconds: float = 30.0
    hour: float = 3600.0
    missing_seconds: float = 900.0
    pause_seconds: float = 600.0
    nearly_used_up: float = 0.9
    worthwhile: float = 0.1
    reserve: float = 1.5
    cpu_reserve: float = 1.2
    least_memory: int = 256 * 1024**2
    memory_waits: float = 6.0
    resources_cost: float = 0.05
    noticeable: float = 0.02
    deadline_member: float = 0.05
    as_cheap: float = 0.95
    deadline_reserve: float = 0.08
    tolerance: float = 0.03
    far_less: float = 0.7
    shapes: int = 2000
    roughness: tuple[tuple[float, float, float], ...] = ((0.7, 0.012, 0.0), (0.3, 0.08, 0.06))
    neighbourhood: float = 0.7
    tails: float = 6.0
    least_noise: float = 0.004
    age_error: float = 0.05
    negligible: float = 1e-3
    search_plans: int = 8
    search_returns: int = 2
    horizon_seconds: float = 3 * 3600.0
    trial_part: float = 0.5
    least_gain: float = 0.01
    largest_step: float = 4.0
    surely: float = 0.9
    clear_error: float = 0.35
    tie: float = 0.02
    tie_slope: float = 0.1
    exact: float = 0.015


THRESHOLDS = Thresholds()
