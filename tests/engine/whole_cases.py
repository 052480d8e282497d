"""Scenes that once broke a rule, each with what it broke, and scenes that find a break which few random ones find."""

from __future__ import annotations

from dataclasses import replace

from agent_magic import Policy
from tests.engine.whole_scene import Asked, Scene

OPUS = "claude-opus-5"

TWO_LINES_OF_ONE_CLASS = Scene(
    ((), (), (), (), ()),
    (
        Asked(3.75, 1_400, 10_000, timeout_s=5.0),
        Asked(6.25, 6_775, 1_475, group="context", timeout_s=5.0, guess=0.25),
        Asked(0.0625, 7_250, 6_975, model=OPUS, timeout_s=5.0),
        Asked(1.4375, 7_725, 3_875, ("hang",), timeout_s=60.0, guess=8.0),
        Asked(23.625, 5_725, 6_400, timeout_s=60.0),
    ),
    Policy(2, "layers", max_attempts=4, seed=1, deadline_s=30.0),
    (60.0, 20_000.0, 200_000.0),
    told=True,
)
"""A line that had lost its turn was told to ask again at a time that had come: it asked without end."""

BEHIND_THE_FIRST_WINDOW = Scene(
    ((),) * 10,
    tuple(
        Asked(takes_s, group=group)
        for takes_s, group in (
            (2.1875, "context"),
            (0.75, "other"),
            (4.625, "other"),
            (4.25, "context"),
            (4.5625, "context"),
            (4.3125, "context"),
            (2.4375, None),
            (2.4375, "other"),
            (1.125, None),
            (4.8125, "other"),
        )
    ),
    Policy(10, seed=1),
    (60.0, 20_000.0, 5e6),
    began_s=1.0986847560962076,
)
"""Lines of one class behind the first window asked again after a rounding error, and so without end."""

DOLLARS_A_MINUTE = Scene(
    ((), (), (), ()),
    (
        Asked(0.0625, 0, 0, guess=0.25),
        Asked(0.0625, 0, 2_825, guess=0.25),
        Asked(0.0625, 0, 5_800, guess=0.25),
        Asked(0.0625, 1_875, 10_000, guess=0.25),
    ),
    Policy(1, max_attempts=1, budget_tokens=20_500, max_usd_per_min=20.0, seed=1),
    (6.0, 20_000.0, 20_000.0),
)
"""Dollars a minute old were waited for until a time at which, by a rounding error, they were not a minute old."""

RETRY_INTO_AN_OPEN_LAYER = Scene(
    ((), (), (), (), (), (1,), ()),
    (Asked(0.0625), Asked(0.0625, fates=("400", "ok")), *(Asked(0.0625) for _ in range(5))),
    Policy(1, "layers", seed=1),
    controls=((0.0625, "retry", None),),
)
"""An agent ran again, and those of the next layer that had not gone yet did not wait for it."""

ALARMS = Scene(
    ((),) * 12,
    (Asked(24.8125), *(Asked(0.0625) for _ in range(10)), Asked(0.0625, group="context")),
    Policy(12, seed=1),
    (6.0, 20_000.0, 20_000.0),
)
"""Times to ask for room that another had taken the place of brought forth the next: 2,000 a second."""

SHORT = Scene(((), (), ()), (Asked(0.0625), Asked(0.0625), Asked(0.0625)), Policy(1, seed=1))

ONE_SLOT_FOR_THREE = replace(SHORT, others=((0.0, SHORT), (0.0, SHORT)))
"""Two of three runs passed the one slot of a session to each other; the third had none while they went on."""

THREE_SLOTS_FOR_TWO = Scene(
    ((),) * 6, (Asked(),) * 6, Policy(3, seed=1), others=((0.5, Scene(((),) * 6, (Asked(),) * 6, Policy(3, seed=1))),)
)
"""Each of two runs took one slot, and the third was idle while both waited for one."""

HASTY = Scene(
    ((), (), (0, 1)),
    (Asked(), Asked(), Asked(0.5, fates=("500 after 2", "ok"), timeout_s=3.0)),
    Policy(1, max_attempts=2, seed=1),
)

OVER_WHEN_ITS_SLOT_CAME = replace(HASTY, others=((4.0, HASTY),))
"""A run was offered a slot when its last agent's deadline had passed, and was over by that: the offer failed."""

LIMITED = Scene(((),) * 8, (Asked(0.25),) * 8, Policy(4, seed=1), (60.0, 5e6, 5e6), 4.0, told=True)

PAUSED_IN_ITS_TURN = replace(
    LIMITED, controls=((3.625, "pause", None), (23.625, "resume", None)), others=((0.0, LIMITED),)
)
"""What flowed in was saved for a run that somebody had paused, for two seconds."""

SOON = Scene(((),) * 5, (Asked(0.25),) * 5, Policy(4, seed=1))

WOKEN_BY_THE_KEY = replace(SOON, key=True, others=((0.0, SOON),))
"""The first reply to an untried key wakes the other run within the call that tells of it."""

WOKEN_BY_A_REFUSAL = Scene(
    ((),) * 7,
    (
        Asked(4.0625, model="claude-opus-5"),
        *(Asked(took_s, model="claude-haiku-5-5") for took_s in (2.0625, *(0.0625,) * 5)),
    ),
    Policy(4, max_attempts=1, seed=1),
    (6.0, 20_000.0, 20_000.0),
    key=True,
    others=((0.0, Scene(((),), (Asked(0.0625, model="claude-haiku-5-5"),), Policy(1, max_attempts=1, seed=1))),),
)
"""The first reply to an untried key was a 429: the other run went before the wait that it names was known."""

WOKEN_BY_THE_FIRST_REPLY = replace(SOON, policy=Policy(1, seed=1), limits=(60.0, 5e6, 5e6), others=((0.0, SOON),))
"""A run of four waits for the first reply that a run of one gets, and is told of it."""

PAUSED_BESIDE_ANOTHER = replace(
    LIMITED,
    policy=Policy(2, seed=1),
    others=((8.125, replace(SOON, controls=((1.0, "pause", None), (21.5625, "resume", None)))), (8.5, SOON)),
)
"""Of two later runs one is paused while it has the turn."""

UNREACHED, REACHED_AT_LAST = Asked(0.0625, fates=("nowhere",)), ("nowhere", "nowhere", "ok")

NOWHERE_FOR_A_WHILE = Scene(
    ((),) * 9,
    (
        *(UNREACHED,) * 4,
        *(Asked(takes_s, fates=REACHED_AT_LAST) for takes_s in (2.3125, 0.3125, 0.0625)),
        *(UNREACHED,) * 2,
    ),
    Policy(2, max_attempts=4, seed=1),
)
"""Nothing is reached, then some are: requests go one at a time, and in company again."""

NO_TOKENS = Asked(0.0625, 0, 0, timeout_s=5.0)

LATE_IN_ITS_TURN = Scene(
    ((),) * 4,
    (
        replace(NO_TOKENS, takes_s=1.5625, fates=("529", "ok")),
        *(NO_TOKENS,) * 2,
        replace(NO_TOKENS, takes_s=25.0, fates=("429 after 3", "turn", "ok"), timeout_s=60.0),
    ),
    Policy(1, max_attempts=2, deadline_s=30.0, seed=1),
    others=((0.0, Scene(((),), (NO_TOKENS,), Policy(1, max_attempts=1, seed=1))),),
)
"""A turn came in while it was being aborted at the run's deadline, and the next one was asked."""

CASES = {
    "two lines of one class": TWO_LINES_OF_ONE_CLASS,
    "behind the first window": BEHIND_THE_FIRST_WINDOW,
    "dollars a minute": DOLLARS_A_MINUTE,
    "retry into an open layer": RETRY_INTO_AN_OPEN_LAYER,
    "alarms that bring forth alarms": ALARMS,
    "one slot for three runs": ONE_SLOT_FOR_THREE,
    "three slots for two runs": THREE_SLOTS_FOR_TWO,
    "over when its slot came": OVER_WHEN_ITS_SLOT_CAME,
    "paused in its turn": PAUSED_IN_ITS_TURN,
    "woken by the key": WOKEN_BY_THE_KEY,
    "woken by a refusal": WOKEN_BY_A_REFUSAL,
    "woken by the first reply": WOKEN_BY_THE_FIRST_REPLY,
    "paused beside another": PAUSED_BESIDE_ANOTHER,
    "nowhere for a while": NOWHERE_FOR_A_WHILE,
    "late in its turn": LATE_IN_ITS_TURN,
}
