"""Every constant of the auto-scaler's rules, with its unit and its reason.

The constants of the search were chosen by simulations (`bench/autoscaling.py`), in worlds other
than those that the figures are measured in.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024**2


@dataclass(frozen=True)
class Thresholds:
    """The constants, by the rules that use them. A "part" is a number from 0 to 1."""

    # --- measuring

    warm_up: float = 0.2
    """Part of the first window that is not measured: compilation and the first steps."""
    early_part: float = 0.15
    early_steps: int = 10
    """Part of a window, and steps, after which a window is of use before its end."""
    early_pause: float = 0.1
    """Part of a window between two decisions before its end."""
    piece: float = 1 / 15
    spread_pieces: int = 4
    """Least part of a window whose own rate is looked at, and the number of such pieces that show
    how much the rate varies.
    """
    related_pieces: float = 1.5
    """Consecutive pieces are alike, so their mean varies more than that of independent ones."""
    mean_windows: float = 8.0
    settled_mean_windows: float = 4.0
    """Windows that a mean has at most; at a settled size fewer, so that it follows a slow trend."""
    stored_sizes: int = 16
    """Sizes whose rates are kept."""
    rise: float = 0.05
    rise_noises: float = 4.0
    slow_windows: int = 4
    """A window after a world's first one rises if it is faster than all before by this part, and by
    this multiple of the noise. No more windows than these are left out for it: a rate that rises
    for longer is a trend, with which the search must live.
    """
    usual_noise: float = 0.02
    usual_noise_repeats: int = 2
    noise_repeats: int = 30
    """The noise before any repeated window, the number of repeats it counts as, and the most
    repeats that count.
    """
    rescale_costs: int = 5
    unknown_rescale_seconds: float = 30.0
    """Rescales whose costs are kept, and the cost in seconds before the first one."""
    unknown_horizon_seconds: float = 3600.0
    """Seconds in which a change must pay if the training does not report its length."""
    window_samples: int = 20
    longest_sample_pause: float = 15.0
    """Samples of CPU and memory in a window, and the most seconds between two."""

    # --- changes of the throughput

    drift: float = 0.15
    drift_noises: float = 4.0
    """A window strays if it differs from the mean by this part, and by this multiple of the noise."""
    slow_drift: float = 0.4
    """A window also strays if it differs by this part from the rate with which the size settled."""
    drift_windows_in_search: int = 2
    faster_windows: int = 6
    slower_windows: int = 72
    """Windows in a row that must stray for another search. A settled size that became slower waits
    longer, because only members are lost by waiting.
    """
    same_size: float = 0.1
    drift_doublings: int = 5
    """A search that ends within this part of the size where it began doubles the wait for the next
    one, up to this number of times.
    """

    # --- objectives

    noticeable: float = 0.02
    """Part of an average member that a further one must add for Throughput: less is not measurable."""
    deadline_member: float = 0.05
    """The same for Deadline, where a member beyond those that meet the finish time is lost."""
    as_cheap: float = 0.95
    """Part of its price that a member must add for Cost: at nearly the same price, faster is better."""
    deadline_reserve: float = 0.08
    """Part by which a rate must exceed the needed one: a restart, a slower hour."""
    deadline_rescales: int = 2
    """Rescales that are still to come before the end."""
    efficiency_tolerance: float = 0.03
    """How far a member may be below `Efficiency`: so small a difference is not measurable."""

    # --- pods that the cluster cannot run

    missing_seconds: float = 900.0
    """Seconds that members may be missing while the others train."""
    first_pause_seconds: float = 600.0
    longest_pause_seconds: float = 6 * 3600.0
    """Seconds between two requests for pods that the cluster could not run; each pause doubles."""
    resources_pause_seconds: float = 3600.0
    """Seconds without another plan for CPU or memory after one that failed."""

    # --- parameter servers

    overloaded: float = 0.9
    """Part of its requested CPU from which on a server may slow the workers down."""
    more_cpu: float = 2.0
    least_more_cpu: float = 1.1
    """Factor by which one plan raises the CPU, and the least factor that is worth a plan."""
    more_servers: int = 2
    """Factor by which one plan raises the number of servers."""
    trial_windows: float = 2.0
    trial_gain: float = 0.1
    """Windows after which a trial is judged, and the part that the throughput must have grown by."""
    trial_again: float = 1.5
    """Factor by which the size or the throughput must have grown before a failed trial is repeated."""

    # --- CPU and memory

    nearly_used_up: float = 0.9
    """Part of CPU or memory in use from which on a sample counts as near the limit."""
    near_limit_samples: float = 0.5
    """Part of the samples near the limit from which on a member needs more memory."""
    more_memory: float = 1.5
    least_more_memory: float = 1.05
    """Factor from the use to the new limit, and the least factor of the limit that is worth a plan."""
    memory_unit: int = 64 * _MIB
    """Bytes that memory is rounded to."""
    least_memory: int = 256 * _MIB
    least_cpu: float = 0.1
    """Bytes and cores that a member has at least."""
    peak_growth: float = 1.02
    """Factor by which a peak must grow to be stored again, so that the state is written seldom."""
    observed_seconds: float = 3600.0
    """Seconds for which a role's use must be known before it is lowered, and between two lowerings."""
    memory_seconds: float = 6 * 3600.0
    memory_periods: float = 4.0
    """The same for memory, and the multiple of the time in which the most memory was reached."""
    memory_when_fewer: float = 0.9
    """Part of the memory that a member may be expected to use at a smaller size."""
    lowering_windows: float = 3.0
    """Windows for which the size must have settled before a role is lowered."""
    peak_memory_reserve: float = 2.0
    peak_cpu_reserve: float = 1.5
    """Factors from the peak use to the lowered request."""
    unused_part: float = 0.5
    """A request is lowered if the peak with its reserve is at most this part of it."""
    lowered_part: float = 0.5
    """One plan lowers a request to no less than this part."""
    resources_cost: float = 0.05
    """Part of the remaining time that a change of CPU or memory, or a look at fewer members, may cost."""
    request_memory_reserve: float = 1.5
    request_cpu_reserve: float = 1.2
    """Factors from the use to the first request: too little CPU slows, too little memory evicts."""
    requests_rescales: int = 2
    """Rescales that the first requests cost: members are added, then the others are replaced."""

    # --- earlier jobs

    same_rate: float = 0.15
    """Part by which the rate may differ from that of the earlier job to be the same."""
    inheritances: int = 4
    """Jobs in a row that take a size over; the next one searches, so that no poor size is kept."""

    # --- the model

    shapes: int = 2000
    """Number of shapes: fewer know too few forms, more take longer than a tick should."""
    roughness: tuple[tuple[float, float, float], ...] = ((0.7, 0.012, 0.0), (0.3, 0.08, 0.06))
    neighbourhood: float = 0.7
    """Prior probability of each roughness, with the relative deviation from the shape of a size on
    its own, and of one together with its neighbours: those within this logarithm of the ratio.
    """
    tails: float = 6.0
    """Degrees of freedom of the likelihood: with fewer, shapes that fit badly are doubted less."""
    least_noise: float = 0.004
    """Relative deviation of a window at least: a program that reports seldom seems to have none."""
    age_error: float = 0.05
    """Relative error of a rate for each hour since it was measured: everything changes with time."""
    negligible: float = 1e-3
    """Shapes whose likelihood is below this part of the best one's are dropped."""
    nearly_best: float = 0.97
    """A size is large enough if it reaches this part of the best size's throughput."""
    waste: float = 1.15
    """A size is too large if it is more than this multiple of the best size, plus one."""

    # --- the search

    search_plans: int = 8
    later_search_plans: int = 4
    search_returns: int = 2
    """Plans of one search, of one that begins because of a change or a finish time, and further
    ones that go back to a measured size.
    """
    horizon_seconds: float = 3 * 3600.0
    """Seconds in which a gain counts at most: later on everything may be different."""
    trial_part: float = 0.5
    """Part of a window that a trial which fails takes."""
    least_gain: float = 0.01
    """Relative gain, as an expectation, that no trial is made for."""
    largest_step: float = 4.0
    """Multiple of the largest measured size that may be tried."""
    surely: float = 0.9
    """Likelihood of being worse with which a size is left in the middle of a window."""
    clear_error: float = 0.35
    """Error of the present size, relative to the difference that a trial may show, below which the
    trial is made.
    """
    tie: float = 0.02
    tie_slope: float = 0.1
    """What a larger size may be worth less and still be preferred, and the same for each logarithm
    of the ratio.
    """
    least_windows: float = 2.0
    most_windows: float = 6.0
    exact: float = 0.015
    """To settle, a size is measured for at least this number of windows, at most for the second
    number, and until the mean has this relative error.
    """
    least_look: float = 1.3
    look_windows: int = 12
    look_cost: float = 0.003
    """The least step of a look at a larger size, the windows at rest before it, and the part of this
    time that it may cost. Each wait is twice as long as the one before.
    """

    # --- another search for a finish time

    too_slow: float = 1.03
    too_slow_windows: int = 3
    """Multiple of the needed rate below which a size is too slow, and windows before it is left."""
    far_less: float = 0.7
    too_fast_windows: int = 12
    """Part of the rate that must be enough for a smaller size, and windows before it is tried."""
    least_horizon: float = 3600.0
    """Seconds before the end in which members are not released: it saves little and may be late."""


THRESHOLDS = Thresholds()
