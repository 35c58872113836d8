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
    stored_sizes: int = 32
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

    noticeable: float = 0.05
    """Part of an average member that a further one must add for Throughput: less is not measurable."""
    as_fast: float = 0.02
    """A smaller size is preferred for Throughput if it is slower by no more than this part."""
    as_cheap: float = 0.98
    """Part of its price that a member must add for Cost: at nearly the same price, faster is better."""
    deadline_reserve: float = 0.08
    """Part by which a rate must exceed the needed one: a restart, a slower hour."""
    deadline_rescales: int = 2
    """Rescales that are still to come before the end."""
    elasticity_tolerance: float = 0.05
    """How far an elasticity may be below `Efficiency`: so small a difference is not measurable."""

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

    # --- curves

    sharpness: tuple[float, ...] = (1.0, 2.0, 4.0, 10.0, 40.0)
    """How abruptly a shared resource limits the throughput: from Amdahl's law to a hard limit."""
    knee_step: float = 1.05
    congested_knee_step: float = 1.2
    congestion_step: float = 1.1
    """Ratios of consecutive knees, without and with congestion, and of consecutive congestions."""
    congested: float = 0.3
    unbounded: float = 0.05
    """Prior probabilities of congestion, and of no limit at all."""
    formula_error: float = 0.012
    """Relative error of the formula itself."""
    single_member_error: float = 0.3
    """Relative error of what a single member, which communicates with no other, says about several."""
    age_error: float = 0.1
    """Relative error of a rate for each hour since it was measured: everything changes with time."""
    negligible: float = 1e-3
    """Curves whose likelihood is below this part of the best one's are dropped."""
    nearly_best: float = 0.97
    """A size is large enough if it reaches this part of the best size's throughput."""
    waste: float = 1.15
    """A size is too large if it is more than this multiple of the best size, plus one."""

    # --- sizes to try

    smallest_step: float = 1.3
    largest_step: float = 2.25
    """Factors between which the next larger size is looked for; about 2 is wanted."""
    rounding: float = 1.125
    """Factor by which a size may be larger to be rounder."""
    divisible_enough: int = 8
    """A multiple of this number is as good as one of 16."""

    # --- the search

    search_plans: int = 8
    search_returns: int = 2
    """Plans of one search, and further ones that go back to a measured size."""
    sure: float = 0.8
    """Likelihood with which a decision needs no further measurement."""
    first_step_error: float = 0.15
    """The first size is measured until its error is this part of the step to the next one."""
    climb_windows: float = 2.0
    """Windows after which the climb goes by the mean, however close it is to the objective."""
    abrupt_before: float = 0.75
    abrupt: float = 0.3
    """The change is abrupt if one step has at least the first elasticity, and the next one surely no
    more than the second.
    """
    slowdown: float = 0.25
    """How far an elasticity is below the one before if the throughput approaches a limit."""
    least_windows: float = 2.0
    most_windows: float = 6.0
    exact: float = 0.015
    """A move that cannot be reverted waits for at least this number of windows, at most the second
    number, and for this relative error of their mean.
    """
    try_larger: float = 0.05
    try_larger_again: float = 0.3
    turn: float = 0.6
    """Likelihoods that another size is better from which on the search tries a larger one, tries
    one after a poor step, and turns.
    """
    careful: float = 0.95
    likely: float = 0.9
    bold: float = 0.2
    """Likelihoods that a new size is large enough: downwards after the turn, upwards after it, and
    downwards before it.
    """
    small_step: float = 1.25
    """Factor of a step up after the turn, if the remaining plans reach the maximum with it."""
    step_down: float = 0.6
    """Part of the smallest known size that a step down before the turn may go to."""
    worth_trying: float = 0.03
    """Part by which a new size must promise to be faster than the best measured one."""
    gap: float = 1.5
    """Ratio of two measured sizes from which on a size between may be better than both."""
    clearly_better: float = 0.03
    clearly_better_errors: float = 1.5
    """A measured size is clearly better by this part, and by this number of standard errors."""
    clearly_fewer: float = 1.25
    """A size that is this many times as large has clearly more members."""

    look_windows: int = 12
    look_cost: float = 0.01
    """Windows at rest before a larger size is looked at again, and the part of this time that the
    look may cost. Each wait is twice as long as the one before.
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
