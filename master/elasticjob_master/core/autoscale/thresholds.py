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
        noises: multiple of the noise that is no noise.
        least_windows: windows that a size is measured to settle or to judge a trial, at least.
        most_windows: the same at most, the windows that a mean has, and those for which a gain
            must last to be one for good.
        lasting: hours for which a slower throughput must last, as only members are lost by waiting;
            in half of it a gain counts at most, as later all may be different. Memory is known for
            it, or for this multiple of the time to its peak, before it is lowered.
        doublings: the most times that a wait doubles which was of no use.
        stored: sizes, and costs of rescales, that are remembered.
        unknown_rescale_seconds: seconds that a rescale costs before one is measured.
        hour: seconds that remain if the training does not report its length, that a plan for CPU
            and memory waits after one that failed, and that a role's use must be known to lower it.
        pause_seconds: seconds for which members may be missing while the others train, and until
            pods are requested again that could not be had; then it doubles.
        nearly_used_up: part of CPU or memory in use from which on there may be too little.
        worthwhile: relative difference of a throughput that is another one, gain for which servers
            keep more CPU, or become more, reserve for a finish time, and difference of CPU or
            memory that is worth a plan.
        minor: part of the remaining time that a change of CPU or memory may cost, of an average
            member that a further one must add for Deadline, of its price by which it may add less
            for Cost, and of a rate by which its error grows in an hour.
        noticeable: relative difference that is hard to see: the deviation of a window before one
            was repeated, the growth of a peak that is stored, the part of an average member that a
            further one must add for Throughput, and by which it may add less for Efficiency, and
            what a larger size may be worth less and still be preferred.
        reserve: factor from the used memory to that which is requested, from the used CPU to that
            which is left by lowering it, from the variation in a window to the error of its mean,
            by which a rate exceeds the needed one if fewer members may do, and by which a job must
            grow to try the same again.
        cpu_reserve: factor from the mean use of CPU to the first request.
        least_memory: bytes of a member at least; memory is rounded to a quarter of it.
        shapes: number of shapes of the model: fewer know too few forms, more take too long.
        roughness: prior probability of each roughness, with the relative deviation from the shape
            of a size on its own, and of one together with its neighbours.
        tails: degrees of freedom of the likelihood; with fewer, poor fits are doubted less.
        search_plans: plans of a search; half of it if a change or a finish time begins it, and a
            quarter for a look, and to go back to a measured size.
        trial_part: part of a window that a trial which fails takes.
        least_gain: relative gain that no trial is made for, and the part of the time at rest that
            a look may cost.
        largest_step: multiple of the largest measured size that may be tried.
        surely: likelihood of being worse with which a size is left in the middle of a window.
        clear_error: error of the present size, relative to the difference that a trial may show,
            below which the trial is made.
        exact: relative error of the mean with which a size settles.
    """

    warm_up: float = 0.2
    early_steps: int = 10
    piece: float = 1 / 15
    sample_seconds: float = 15.0
    noises: float = 4.0
    least_windows: float = 2.0
    most_windows: float = 6.0
    lasting: float = 6.0
    doublings: int = 5
    stored: int = 16
    unknown_rescale_seconds: float = 30.0
    hour: float = 3600.0
    pause_seconds: float = 900.0
    nearly_used_up: float = 0.9
    worthwhile: float = 0.1
    minor: float = 0.05
    noticeable: float = 0.02
    reserve: float = 1.5
    cpu_reserve: float = 1.2
    least_memory: int = 256 * 1024**2
    shapes: int = 2000
    roughness: tuple[tuple[float, float, float], ...] = ((0.7, 0.012, 0.0), (0.3, 0.08, 0.06))
    tails: float = 6.0
    search_plans: int = 8
    trial_part: float = 0.5
    least_gain: float = 0.01
    largest_step: float = 4.0
    surely: float = 0.9
    clear_error: float = 0.35
    exact: float = 0.015


THRESHOLDS = Thresholds()
