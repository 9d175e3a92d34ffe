"""What every strategy must hold, and worked cases of each."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridaware.domain.errors import ConfigError, NotFound
from gridaware.domain.job import JobState, Tier
from gridaware.domain.plan import ActionKind
from gridaware.domain.reasons import names_of, sentence
from gridaware.domain.reasons_planning import REASONS
from gridaware.domain.situation import JobView, Situation
from gridaware.planning.model import curve_of
from gridaware.planning.strategies import STRATEGIES
from gridaware.wiring.curves import load_curves

BOOK = load_curves()
CURVES = [curve_of(e.gpu, work) for e in BOOK.entries for work in e.workloads.values()]
ON_GPUS = (JobState.RUNNING, JobState.CAPPED, JobState.STALLED)

both = pytest.mark.parametrize(
    "strategy", [thing for _, thing in STRATEGIES], ids=STRATEGIES.names()
)


@st.composite
def job_views(draw, states=tuple(JobState)):
    curve = draw(st.sampled_from(CURVES))
    tier = draw(st.sampled_from(list(Tier)))
    state = draw(st.sampled_from(states))
    gpus = draw(st.integers(1, 16))
    top = curve.cap_watts[-1]
    found = draw(st.sampled_from((top, 0.9 * top)))
    cap = draw(st.sampled_from((found, max(0.7 * found, curve.cap_watts[0]))))
    return JobView(
        job_id="",
        tier=tier,
        priority=draw(st.integers(0, 1)),
        state=state,
        gpu_count=gpus,
        draw_watts=gpus * curve.power_at(cap) if state.on_gpus else 0.0,
        cap_watts=cap,
        found_watts=found,
        least_cap_watts=curve.cap_watts[0] * draw(st.sampled_from((1.0, 1.0, 1.3))),
        curve=curve,
        loss_budget_seconds=tier.allowed_loss * 21600 * draw(st.floats(-0.1, 1)),
        pausable=draw(st.booleans()),
        pause_cost_seconds=draw(st.floats(0, 600)),
        since_change_seconds=draw(st.sampled_from((1e9, 30.0))),
    )


@st.composite
def situations(draw, **fixed):
    views = draw(st.lists(job_views(fixed.pop("states", tuple(JobState))), max_size=8))
    jobs = tuple(replace(view, job_id=f"job-{i}") for i, view in enumerate(views))
    other = draw(st.floats(0, 500))
    full = other + sum(v.gpu_count * v.curve.power_at(v.found_watts) for v in jobs)
    target = full * draw(st.floats(0.05, 1.1)) if draw(st.integers(0, 9)) else None
    horizon = draw(st.sampled_from((45.0, 900.0, 7200.0, 36000.0)))
    flags = {name: draw(st.booleans()) for name in ("must", "allow_pause", "rising", "hard")}
    return Situation(jobs, other, target, horizon, **{**flags, **fixed})


def expected_by_hand(situation, plan):
    """Sum of what the actions expect; the idle of a paused job's GPUs is part of ``other``."""
    total = situation.other_gpu_watts
    for action, view in zip(plan.actions, situation.jobs, strict=True):
        total += action.expected_watts
        if action.kind is ActionKind.RESUME:
            total -= view.gpu_count * view.curve.idle_watts
    return total


@both
@settings(max_examples=150, deadline=None)
@given(situation=situations())
def test_every_plan_is_whole_legal_honest_and_repeatable(strategy, situation):
    plan = strategy(situation, {})
    assert strategy(situation, {}) == plan
    assert [action.job_id for action in plan.actions] == [view.job_id for view in situation.jobs]
    assert plan.expected_gpu_watts == pytest.approx(expected_by_hand(situation, plan), abs=1e-3)
    if situation.target_gpu_watts is None:
        assert plan.shortfall_watts == 0.0
        assert not plan.stop_admission
    else:
        excess = plan.expected_gpu_watts - situation.target_gpu_watts
        assert plan.shortfall_watts == pytest.approx(max(excess, 0.0), abs=0.1)
    for action, view in zip(plan.actions, situation.jobs, strict=True):
        least = min(view.least_cap_watts, view.found_watts)
        assert least - 1e-6 <= action.cap_watts <= view.found_watts + 1e-6
        assert 0.0 <= action.expected_throughput <= 1.0
        assert action.expected_watts >= 0.0
        assert len(action.numbers) == len(dict.fromkeys(names_of(action.reason)))
        assert "\N{EN DASH}" not in sentence(action.reason, action.numbers)
        if action.kind is ActionKind.PAUSE and view.state is not JobState.PAUSING:
            assert view.pausable
            assert view.tier is not Tier.FIRM
            assert situation.allow_pause
        if situation.rising and view.state in ON_GPUS:
            assert action.cap_watts >= min(view.cap_watts, view.found_watts) - 1e-6
            assert action.kind is not ActionKind.PAUSE


@both
@settings(max_examples=150, deadline=None)
@given(situation=situations(states=ON_GPUS, rising=False, hard=False))
def test_firm_jobs_lose_nothing_while_anyone_else_has_something_left(strategy, situation):
    plan = strategy(situation, {})
    firm_cut = [
        action
        for action, view in zip(plan.actions, situation.jobs, strict=True)
        if view.tier is Tier.FIRM
        and action.expected_throughput < view.curve.throughput_at(view.found_watts) - 1e-6
    ]
    assert bool(firm_cut) == plan.firm_floor_broken
    if not (firm_cut or plan.shortfall_watts):
        return
    if firm_cut:
        assert situation.must
    for action, view in zip(plan.actions, situation.jobs, strict=True):
        floor = view.gpu_count * view.curve.power_at(view.least_cap_watts)
        if view.tier is not Tier.FIRM and situation.must:
            may_leave = view.pausable and situation.allow_pause
            assert action.kind is ActionKind.PAUSE or not may_leave
            assert action.expected_watts <= floor * (1 + 1e-6) + 1e-6
        if view.tier is Tier.FIRM and plan.shortfall_watts and situation.must:
            assert action.expected_watts <= floor * (1 + 1e-6) + 1e-6


@both
@settings(max_examples=100, deadline=None)
@given(situation=situations(states=ON_GPUS, rising=False, must=False, hard=False))
def test_a_wish_never_breaks_a_tiers_promise(strategy, situation):
    plan = strategy(situation, {})
    for action, view in zip(plan.actions, situation.jobs, strict=True):
        share = action.expected_throughput / view.curve.throughput_at(view.found_watts)
        lost = (1 - share) * situation.horizon_seconds
        if action.kind is ActionKind.PAUSE:
            lost += view.pause_cost_seconds
        if view.tier is not Tier.PREEMPTIBLE:
            assert lost <= max(view.loss_budget_seconds, 0.0) + 1e-3


@both
@settings(max_examples=60, deadline=None)
@given(
    situation=situations(states=ON_GPUS, rising=False, allow_pause=False), lower=st.floats(0.3, 1)
)
def test_with_caps_alone_a_lower_target_never_raises_a_cap(strategy, situation, lower):
    if situation.target_gpu_watts is None:
        return
    deeper = replace(situation, target_gpu_watts=lower * situation.target_gpu_watts)
    before, after = strategy(situation, {}), strategy(deeper, {})
    assert after.expected_gpu_watts <= before.expected_gpu_watts + 1e-3
    for mild, deep in zip(before.actions, after.actions, strict=True):
        assert deep.cap_watts <= mild.cap_watts + 0.01


@both
@settings(max_examples=100, deadline=None)
@given(situation=situations(states=ON_GPUS, rising=False, hard=True))
def test_caps_bridge_the_pauses_wherever_caps_can(strategy, situation):
    plan = strategy(situation, {})
    target = situation.target_gpu_watts
    by_hand = situation.other_gpu_watts + sum(
        view.gpu_count * view.curve.power_at(action.cap_watts)
        for action, view in zip(plan.actions, situation.jobs, strict=True)
    )
    assert plan.expected_at_once_watts == pytest.approx(by_hand, abs=1e-3)
    least = situation.other_gpu_watts + sum(
        view.gpu_count * view.curve.power_at(view.least_cap_watts) for view in situation.jobs
    )
    if target is not None and least <= target:
        assert plan.expected_at_once_watts <= target * (1 + 1e-6) + 1e-3


@both
def test_a_wish_does_not_bridge_below_a_promise(strategy, job, ask):
    stays = job("stays", Tier.FLEX_1, loss_budget_seconds=360.0)  # 10 % for the hour to come
    jobs = [job("leaving", state=JobState.PAUSING), stays]
    wish = strategy(ask(*jobs, share=0.5, must=False), {})
    binding = strategy(ask(*jobs, share=0.5), {})
    pace = stays.curve.throughput_at
    assert pace(wish.actions[1].cap_watts) >= 0.9 - 1e-6
    assert pace(binding.actions[1].cap_watts) < 0.9
    assert wish.expected_at_once_watts > binding.expected_at_once_watts


@both
def test_caps_land_exactly_on_the_target(strategy, job, ask):
    jobs = [job(f"job-{i}", Tier.FLEX_2, gpu_count=4 * (i + 1)) for i in range(5)]
    for share in (0.9, 0.8, 0.75):
        situation = ask(*jobs, share=share)
        plan = strategy(situation, {})
        assert plan.expected_gpu_watts == pytest.approx(situation.target_gpu_watts, rel=1e-6)
        assert plan.shortfall_watts == 0.0
        assert plan.stop_admission


@both
def test_nothing_asked_restores_caps_and_brings_paused_jobs_back(strategy, job, ask):
    plan = strategy(
        ask(
            job("free"),
            job("capped", cap_watts=250.0, state=JobState.CAPPED),
            job("paused", state=JobState.PAUSED, draw_watts=0.0, since_change_seconds=1.0),
            job("waiting", state=JobState.QUEUED, draw_watts=0.0),
        ),
        {},
    )
    assert [(a.kind, a.reason) for a in plan.actions] == [
        (ActionKind.SPARE, "SpareNothingAsked"),
        (ActionKind.RESTORE_LIMITS, "RestoreFree"),
        (ActionKind.RESUME, "ResumeFree"),
        (ActionKind.SPARE, "SpareNotRunning"),
    ]
    assert not plan.stop_admission


def test_tiers_take_from_the_most_flexible_first_and_only_as_much_as_needed(job, ask):
    order = (Tier.PREEMPTIBLE, Tier.FLEX_3, Tier.FLEX_2, Tier.FLEX_1, Tier.FIRM)
    jobs = [job(tier.value, tier) for tier in order]
    tiers = STRATEGIES.get("tiers")
    # A fifth of the fleet is preemptible: 10 % comes from its caps and from nobody else.
    plan = tiers(ask(*jobs, share=0.9), {})
    assert [a.kind for a in plan.actions] == [ActionKind.SET_CAP] + [ActionKind.SPARE] * 4
    # 25 %: the preemptible job leaves, flex-3 gives the rest by caps (and bridges until it has).
    plan = tiers(ask(*jobs, share=0.75), {})
    assert [a.kind for a in plan.actions] == [ActionKind.PAUSE, ActionKind.SET_CAP] + [
        ActionKind.SPARE
    ] * 3
    assert plan.actions[1].reason == "CapShared"
    assert [a.reason for a in plan.actions[3:]] == ["SpareNotNeeded", "SpareFirm"]


def test_lower_priority_gives_first_within_a_tier(job, ask):
    plan = STRATEGIES.get("tiers")(ask(job("dear", priority=5), job("cheap"), share=0.9), {})
    assert [a.kind for a in plan.actions] == [ActionKind.SPARE, ActionKind.SET_CAP]


def test_a_cap_is_not_a_shed_so_jobs_that_draw_little_are_left_alone(job, ask):
    gpu = BOOK.gpu("h200-700")
    decode = curve_of(gpu, BOOK.workload(gpu, "llm-decode"))
    # Decode draws 137 to 300 W of 700: capping it at 400 W would shed nothing.
    situation = ask(
        job("decode", Tier.PREEMPTIBLE, curve=decode, pausable=False, least_cap_watts=400.0),
        job("train", Tier.FLEX_2),
        share=0.9,
    )
    plan = STRATEGIES.get("tiers")(situation, {})
    assert plan.actions[0].reason == "SpareNothingToGive"
    assert plan.expected_gpu_watts == pytest.approx(situation.target_gpu_watts, rel=1e-6)


def test_pausing_beats_capping_where_the_curves_say_so(job, ask):
    # An idle A100 draws 60 W. Work per watt above that peaks at about 125 W (0.36 of the work at
    # 120 W, 0.28 at 110 W), so at 107 W a GPU some should leave and the others stay above.
    jobs = [job(f"job-{i}", Tier.PREEMPTIBLE) for i in range(10)]
    situation = ask(*jobs, share=0.28, horizon_seconds=3 * 3600.0)
    plan = STRATEGIES.get("tiers")(situation, {})
    left = [a for a in plan.actions if a.kind is ActionKind.PAUSE]
    stayed = [a for a in plan.actions if a.kind is not ActionKind.PAUSE]
    assert left
    assert min(a.expected_throughput for a in stayed) > 0.34
    assert plan.expected_gpu_watts == pytest.approx(situation.target_gpu_watts, rel=1e-6)


def test_a_dear_pause_is_not_worth_a_short_event(job, ask):
    jobs = [job(f"job-{i}", Tier.PREEMPTIBLE, pause_cost_seconds=900.0) for i in range(10)]
    plan = STRATEGIES.get("tiers")(ask(*jobs, share=0.28, horizon_seconds=300.0), {})
    assert all(a.kind is ActionKind.SET_CAP for a in plan.actions)


def test_one_pause_too_many_is_replaced_by_caps(job, ask):
    # Pausing the only large job would free far more than the 20 % asked.
    situation = ask(job("large", gpu_count=32), job("small", gpu_count=2), share=0.8)
    for _, strategy in STRATEGIES:
        plan = strategy(situation, {})
        assert not [a for a in plan.actions if a.kind is ActionKind.PAUSE]
        assert plan.expected_gpu_watts == pytest.approx(situation.target_gpu_watts, rel=1e-6)


def test_proportional_takes_the_same_share_of_each_headroom(job, ask):
    jobs = [job("a", Tier.FLEX_1), job("b", Tier.FLEX_2), job("c", Tier.FLEX_2, gpu_count=2)]
    situation = ask(*jobs, share=0.9, horizon_seconds=6 * 3600.0)
    plan = STRATEGIES.get("proportional")(situation, {})
    given = []
    for action, view in zip(plan.actions, situation.jobs, strict=True):
        curve = view.curve
        caps = np.linspace(100, 400, 3001)
        allowed = [c for c in caps if curve.throughput_at(c) >= 1 - view.tier.allowed_loss]
        headroom = view.gpu_count * (curve.power_at(400.0) - curve.power_at(min(allowed)))
        given.append((view.gpu_count * curve.power_at(400.0) - action.expected_watts) / headroom)
    assert given == [pytest.approx(given[0], rel=2e-3)] * 3


@both
def test_what_binds_breaks_firm_floors_last_and_says_so(strategy, job, ask):
    jobs = [job("flex", Tier.FLEX_1, pausable=False), job("firm", Tier.FIRM)]
    wish = strategy(ask(*jobs, share=0.5, must=False), {})
    assert wish.shortfall_watts > 0
    assert not wish.firm_floor_broken
    assert wish.actions[1].reason == "SpareFirm"
    binding = strategy(ask(*jobs, share=0.5), {})
    assert binding.firm_floor_broken
    assert binding.shortfall_watts == 0.0
    assert [a.reason for a in binding.actions] == ["CapBelowFloor", "CapFirm"]
    hopeless = strategy(ask(*jobs, share=0.1), {})
    assert hopeless.shortfall_watts > 0


@both
def test_pausing_jobs_are_held_low_and_others_bridge_until_they_left(strategy, job, ask):
    leaving = job("leaving", state=JobState.PAUSING)
    situation = ask(leaving, job("stays", Tier.FLEX_2), share=0.55)
    plan = strategy(situation, {})
    assert plan.actions[0].kind is ActionKind.PAUSE
    assert plan.actions[0].reason == "PauseUnderWay"
    # Low, and yet fast enough to finish the step that its checkpoint waits for.
    assert plan.actions[0].cap_watts < 120.0
    assert leaving.curve.throughput_at(plan.actions[0].cap_watts) == pytest.approx(0.3, abs=1e-6)
    # Once it has left, 0.55 of both is more than the other draws: it is capped only meanwhile.
    assert plan.actions[1].kind is ActionKind.SET_CAP
    assert plan.actions[1].reason == "CapMeanwhile" or plan.actions[1].expected_throughput > 0.9
    assert plan.expected_at_once_watts <= situation.target_gpu_watts + 1e-3


@both
def test_firm_jobs_bridge_a_pause_only_once_the_deadline_is_over(strategy, job, ask):
    jobs = (job("leaving", state=JobState.PAUSING), job("firm", Tier.FIRM))
    before = strategy(ask(*jobs, share=0.6), {})
    assert before.actions[1].kind is ActionKind.SPARE
    assert not before.firm_floor_broken
    situation = ask(*jobs, share=0.6, late=True)
    after = strategy(situation, {})
    assert before.expected_at_once_watts > situation.target_gpu_watts
    assert after.expected_at_once_watts <= situation.target_gpu_watts + 1e-3
    assert after.actions[1].kind is ActionKind.SET_CAP
    assert after.firm_floor_broken  # and that is alarmed
    wish = strategy(ask(*jobs, share=0.6, late=True, must=False), {})
    assert wish.actions[1].kind is ActionKind.SPARE


@both
def test_a_paused_job_comes_back_only_with_room_and_not_at_once(strategy, job, ask):
    runs = job("runs", Tier.FLEX_2)
    paused = job("paused", state=JobState.PAUSED, draw_watts=0.0)
    full = 8 * runs.curve.power_at(400.0)

    def fate(target, **changes):
        view = replace(paused, **changes)
        plan = strategy(ask(runs, view, target_gpu_watts=target, other_gpu_watts=480.0), {})
        return plan.actions[1].kind, plan.actions[1].reason

    # Two jobs at their lowest cap draw 0.53 of one job's full draw.
    assert fate(0.35 * full) == (ActionKind.KEEP_PAUSED, "KeepPausedNoRoom")
    assert fate(2.2 * full) == (ActionKind.RESUME, "ResumeFits")
    assert fate(2.2 * full, since_change_seconds=10.0) == (
        ActionKind.KEEP_PAUSED,
        "KeepPausedRecent",
    )


@both
def test_coming_back_raises_in_reverse_order_and_lowers_nothing(strategy, job, ask):
    jobs = [
        job("firm", Tier.FIRM),
        job("flex", Tier.FLEX_2, state=JobState.CAPPED, cap_watts=250.0),
        job("gone", Tier.FLEX_3, state=JobState.PAUSED, draw_watts=0.0),
    ]
    full = 8 * jobs[0].curve.power_at(400.0)
    plan = strategy(ask(*jobs, target_gpu_watts=1.9 * full, other_gpu_watts=480.0, rising=True), {})
    assert plan.actions[0].kind is ActionKind.SPARE
    assert plan.actions[1].cap_watts > 250.0
    assert plan.actions[2].kind is ActionKind.KEEP_PAUSED
    assert plan.shortfall_watts == 0.0


@both
def test_who_comes_back_comes_by_the_ramp_and_not_in_one_step(strategy, job, ask):
    back = job("back", Tier.FLEX_3, state=JobState.RESUMING, draw_watts=480.0, gpu_count=8)
    full = 8 * back.curve.power_at(400.0)
    situation = ask(job("firm", Tier.FIRM), back, target_gpu_watts=1.6 * full, rising=True)
    cap = strategy(situation, {}).actions[1].cap_watts
    # It may draw what the level of the ramp leaves, not its whole draw.
    assert back.curve.power_at(cap) == pytest.approx(0.6 * full / 8, rel=0.01)


@both
def test_a_hard_limit_with_room_leaves_the_queue_open(strategy, job, ask):
    assert not strategy(ask(job(), share=1.5, hard=True), {}).stop_admission
    assert strategy(ask(job(), share=0.9, hard=True), {}).stop_admission
    assert strategy(ask(job(), share=1.5), {}).stop_admission


@both
def test_an_empty_site_is_planned_too(strategy, ask):
    plan = strategy(ask(other_gpu_watts=100.0, target_gpu_watts=50.0), {})
    assert plan.actions == ()
    assert plan.shortfall_watts == 50.0


@both
def test_a_policy_can_forbid_pauses(strategy, job, ask):
    jobs = [job(f"job-{i}", Tier.PREEMPTIBLE) for i in range(4)]
    plan = strategy(ask(*jobs, share=0.4), {"pause": 0})
    assert all(a.kind is ActionKind.SET_CAP for a in plan.actions)


def test_unknown_numbers_and_names_are_refused(job, ask):
    with pytest.raises(ConfigError, match="dwel_seconds"):
        STRATEGIES.get("tiers")(ask(job()), {"dwel_seconds": 3})
    with pytest.raises(ConfigError, match="0 or more"):
        STRATEGIES.get("tiers")(ask(job()), {"band": float("nan")})
    with pytest.raises(NotFound, match="tiers"):
        STRATEGIES.get("tierz")


def test_every_code_has_a_sentence_whose_numbers_carry_units():
    for code in REASONS:
        for name in names_of(code):
            assert name.endswith(("_watts", "_seconds", "_throughput", "gpus")), (code, name)


def least_lost_work(situation):
    """The optimum with perfect information: every set of pauses, every mix of caps on a fine grid,
    with each staying job in turn landing exactly on what is left. Independent of the planner."""
    horizon, best = situation.horizon_seconds, np.inf
    tables = []
    for view in situation.jobs:
        caps = np.linspace(view.least_cap_watts, view.found_watts, 400)
        watts = view.gpu_count * np.interp(caps, view.curve.cap_watts, view.curve.power_watts)
        lost = view.gpu_count * (1 - np.interp(caps, view.curve.cap_watts, view.curve.throughput))
        kept = lost <= view.gpu_count * view.loss_budget_seconds / horizon + 1e-9
        watts, lost = watts[kept], lost[kept]
        coarse = np.unique(np.linspace(0, len(watts) - 1, 40).astype(int))
        tables.append((watts, lost, watts[coarse], lost[coarse]))
    views = situation.jobs
    may_leave = [
        i for i, v in enumerate(views) if horizon + v.pause_cost_seconds <= v.loss_budget_seconds
    ]
    for count in range(len(may_leave) + 1):
        for gone in itertools.combinations(may_leave, count):
            watts = sum(views[i].gpu_count * views[i].curve.idle_watts for i in gone)
            lost = sum(
                views[i].gpu_count * (1 + views[i].pause_cost_seconds / horizon) for i in gone
            )
            stay = [i for i in range(len(views)) if i not in gone]
            if not stay and watts <= situation.target_gpu_watts:
                best = min(best, lost)
            for last in stay:
                others_watts, others_lost = np.array([watts]), np.array([lost])
                for i in stay:
                    if i != last:
                        others_watts = np.add.outer(others_watts, tables[i][2]).ravel()
                        others_lost = np.add.outer(others_lost, tables[i][3]).ravel()
                room = situation.target_gpu_watts - others_watts
                fits = room >= tables[last][0][0]
                if fits.any():
                    mine = np.interp(room[fits], tables[last][0], tables[last][1])
                    best = min(best, float((others_lost[fits] + mine).min()))
    return best


def lost_work(situation, plan):
    return sum(
        view.gpu_count
        * (
            1
            - action.expected_throughput
            + (action.kind is ActionKind.PAUSE)
            * view.pause_cost_seconds
            / situation.horizon_seconds
        )
        for action, view in zip(plan.actions, situation.jobs, strict=True)
    )


def test_within_a_tier_lost_work_is_at_most_five_per_cent_above_the_optimum():
    chance = random.Random(7)
    compared = 0
    for _ in range(60):
        tier = chance.choice((Tier.FLEX_3, Tier.FLEX_2))
        cost, horizon = chance.uniform(0, 600), chance.choice((900.0, 5000.0, 9000.0))
        jobs = []
        for index in range(chance.randrange(1, 5)):
            curve = chance.choice(CURVES)
            jobs.append(
                JobView(
                    f"job-{index}", tier, 0, JobState.RUNNING, chance.choice((1, 2, 4, 8, 16)),
                    0.0, curve.cap_watts[-1], curve.cap_watts[-1], curve.cap_watts[0], curve,
                    tier.allowed_loss * 21600, True, cost,
                )
            )  # fmt: skip
        full = sum(v.gpu_count * v.curve.power_at(v.found_watts) for v in jobs)
        target = chance.uniform(0.3, 0.98) * full
        situation = Situation(tuple(jobs), 0.0, target, horizon, must=False)
        best = least_lost_work(situation)
        plan = STRATEGIES.get("tiers")(situation, {})
        assert (plan.shortfall_watts > 1.0) == (best == np.inf)
        if best < np.inf:
            compared += 1
            assert lost_work(situation, plan) <= 1.05 * best + 0.01
    assert compared >= 40


def lagrangian_bound(situation, need):
    """No plan loses less: the best value of the dual, over a fine grid of prices of a watt."""
    horizon, options = situation.horizon_seconds, []
    for view in situation.jobs:
        caps = np.linspace(view.least_cap_watts, view.found_watts, 300)
        watts = view.gpu_count * np.interp(caps, view.curve.cap_watts, view.curve.power_watts)
        lost = view.gpu_count * (1 - np.interp(caps, view.curve.cap_watts, view.curve.throughput))
        gone = view.gpu_count * (1 + view.pause_cost_seconds / horizon)
        saved = watts[-1] - np.append(watts, view.gpu_count * view.curve.idle_watts)
        options.append((np.append(lost, gone), saved))
    return max(
        price * need + sum((lost - price * saved).min() for lost, saved in options)
        for price in np.geomspace(1e-5, 1e-1, 400)
    )


@pytest.mark.parametrize("share", [0.85, 0.6, 0.4, 0.25])
def test_in_a_large_fleet_lost_work_is_within_one_per_cent_of_the_bound(share):
    # More jobs than are tried one by one: the sets that leave come from the order of prices.
    chance = random.Random(11)
    jobs = []
    for index in range(150):
        curve = chance.choice(CURVES)
        top, least = curve.cap_watts[-1], curve.cap_watts[0]
        gpus, cost = chance.choice((1, 2, 4, 8)), chance.uniform(0, 900)
        jobs.append(
            JobView(
                f"job-{index}", Tier.PREEMPTIBLE, 0, JobState.RUNNING, gpus, 0.0, top, top, least,
                curve, 0.0, True, cost,
            )
        )  # fmt: skip
    full = sum(v.gpu_count * v.curve.power_at(v.found_watts) for v in jobs)
    situation = Situation(tuple(jobs), 0.0, share * full, 7200.0)
    plan = STRATEGIES.get("tiers")(situation, {})
    assert plan.expected_gpu_watts == pytest.approx(share * full, rel=2e-3)
    bound = lagrangian_bound(situation, (1 - share) * full)
    assert lost_work(situation, plan) <= 1.01 * bound


def test_sharing_in_proportion_among_like_jobs_costs_little_more_than_the_optimum(job, ask):
    jobs = [job(f"job-{i}", Tier.FLEX_2, gpu_count=2 + i) for i in range(4)]
    situation = ask(*jobs, share=0.8, must=False)
    plan = STRATEGIES.get("proportional")(situation, {})
    assert lost_work(situation, plan) <= 1.05 * least_lost_work(situation)
