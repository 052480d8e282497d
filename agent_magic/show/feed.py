"""What the live view is told: everything once, and then only what has changed.

Cost follows what happens, not how many agents or tokens there are: a step looks at the agents that have new events
and at those under way. What a step says stays under `MOST_CHARS`; what does not fit is said in the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_magic.record.events import AgentEnded, AttemptEnded, RunEnded
from agent_magic.show.around import ALONE, strip_of
from agent_magic.show.feed_cards import CardFeed
from agent_magic.show.feed_groups import GroupFeed
from agent_magic.show.groups import Sheet
from agent_magic.show.scene import counted_header, joined, moment_of
from agent_magic.show.states import STATES, state_of
from agent_magic.show.svg import fact_runs
from agent_magic.show.text import facts
from agent_magic.show.units import count, dollars, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agent_magic.record.results import RunRecord
    from agent_magic.show.around import Around
    from agent_magic.show.layout import Layout
    from agent_magic.show.text import Numbers

    Summarize = Callable[[RunRecord, float], Numbers]

SUMMARY_EVERY_S = 0.5  # of a hundred agents; of more as much later
MOST_SUMMARIZED = 200  # over it the summary, which looks at every agent, would take too much of the kernel's time
MOST_CHARS = 8_000
AGAIN = 12
"""How many entries a step repeats, in turn: a view that opened late, or missed a message, is right after a while."""


class Sum:
    """What all attempts so far used.

    Args:
        sources: Sources that are known before any attempt ends.
    """

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self.sources: set[str | None] = set(sources)
        self._tokens: int | None = None
        self._cost_usd: float | None = None

    def take(self, ended: AttemptEnded) -> None:
        """Count an attempt that has ended."""
        self.sources.add(ended.source)
        usage = ended.usage
        if usage is not None and usage.total_input_tokens is not None and usage.output_tokens is not None:
            self._tokens = (self._tokens or 0) + usage.total_input_tokens + usage.output_tokens
        if ended.price.cost_usd is not None:
            self._cost_usd = (self._cost_usd or 0.0) + ended.price.cost_usd

    def phrases(self) -> list[str]:
        """Return tokens and dollars in words."""
        return [f"{count(self._tokens)} tokens", dollars(self._cost_usd)]


class Feed:
    """Follows a run and says what a view of it has to change.

    Args:
        record: The run, which grows.
        placed: Where the cards of the agents stand, or their groups.
        summarize: Works out the numbers of the run so far; `None` shows tokens and dollars only.

    Attributes:
        states: One character per agent.
        full: All that was said so far, in one message: for a view that opens late.
    """

    def __init__(self, record: RunRecord, placed: Layout | Sheet, summarize: Summarize | None = None) -> None:
        self._record = record
        self._summarize = summarize if len(record.plan) <= MOST_SUMMARIZED else None
        self._states = bytearray("".join(map(state_of, record.results)), "ascii")
        self._seen = 0
        self._moving: set[int] = set()
        self._body: CardFeed | GroupFeed = (
            GroupFeed(placed, self.states) if isinstance(placed, Sheet) else CardFeed(record, placed)
        )
        self.full: dict[str, Any] = {key: {} for key in self._body.keyed}
        self._late: dict[str, dict[int, Any]] = {}
        self._again: list[tuple[str, str]] = []
        self._sum = Sum({"simulated"} if record.replays_simulation else ())
        self._numbers: Numbers | None = None
        self._numbers_at = 0.0

    @property
    def states(self) -> str:
        """One character per agent."""
        return self._states.decode("ascii")

    @property
    def rows(self) -> Mapping[int, int]:
        """The row of each agent that has one in the timeline."""
        return self._body.rows if isinstance(self._body, CardFeed) else {}

    def step(self, now_s: float, tails: Mapping[int, str], around: Around = ALONE) -> dict[str, Any]:
        """Return what has changed since the last step; empty where nothing has.

        Args:
            now_s: Seconds since the run began.
            tails: Per agent under way, the end of its text; per agent that is queued, what holds it.
            around: What the record does not know.
        """
        over = self._record.ended_s is not None
        now_s = moment_of(self._record, now_s)
        first = not self.full.get("head")
        fresh, ended = self._changed()
        look = set(range(len(self._states))) if first else fresh | self._moving | set(tails)
        changed = self._take_states(look)
        delta: dict[str, Any] = {}
        for key, entries in self._body.entries(look, fresh, changed, now_s, tails).items():
            self._late.setdefault(key, {}).update(entries)
        self._put_late(delta, all_=first or over)
        for key, value in self._body.values(now_s, ended=ended or first).items():
            self._set(delta, key, value)
        self._set(delta, "head", self._head(now_s, around))
        self._set(delta, "strip", strip_of(around.health))
        if not over:
            self._repeat(delta)
        self._set(delta, "now", None if over else round(now_s, 2))
        return delta

    def whole(self) -> dict[str, Any]:
        """Return a copy of all that was said so far."""
        return {key: {**value} if key in self._body.keyed else value for key, value in self.full.items()}

    def _changed(self) -> tuple[set[int], bool]:
        """Return the agents with new events, and of cards those that waited for one that has ended."""
        news = self._record.events[self._seen :]
        self._seen += len(news)
        fresh: set[int] = set()
        ended = False
        children = self._record.plan.dag.children
        for event in news:
            if isinstance(event, RunEnded):
                ended = True
                continue
            fresh.add(event.agent)
            self._body.take(event)
            if isinstance(event, AttemptEnded):
                self._sum.take(event)
            elif isinstance(event, AgentEnded):
                ended = True
                if self._body.each:
                    fresh.update(children[event.agent])
        return fresh, ended

    def _take_states(self, look: set[int]) -> dict[int, str]:
        """Bring the states up to date; return those that are new, by agent.

        It notes which agents change on their own, without an event: those that wait to try again.
        """
        changed: dict[int, str] = {}
        for agent in look:
            result = self._record.results[agent]
            state = state_of(result)
            if self._states[agent] != ord(state):
                self._states[agent] = ord(state)
                changed[agent] = state
            if not self._body.each:
                continue
            if result.status == "running" or result.waits_until_s is not None:
                self._moving.add(agent)
            else:
                self._moving.discard(agent)
        return changed

    def _head(self, now_s: float, around: Around) -> dict[str, Any]:
        source = joined(self._sum.sources)
        phrases = self._phrases(now_s, source)
        if around.budget_usd is not None:
            phrases = [_of_budget(phrase, around.budget_usd) for phrase in phrases]
        header = counted_header(self.states, now_s, phrases=phrases, source=source)
        counts = header.counts.removesuffix(f" · {seconds(now_s)}")
        if around.cap is not None:
            counts = counts.replace(" running", f" running of {around.cap:,}")
        return {
            "counts": counts,
            "progress": [round(share, 4) for share in (header.done, header.lost, header.running)],
            "facts": [list(run) for run in fact_runs(header)],
            "left": _left(around.left_s),
            "paused": around.paused,
        }

    def _phrases(self, now_s: float, source: str) -> list[str]:
        if self._summarize is None or not self._record.events:
            return [*self._sum.phrases(), *([source] if source else [])]
        late = now_s - self._numbers_at >= SUMMARY_EVERY_S * max(1.0, len(self._states) / 100)
        if self._numbers is None or late or self._record.ended_s is not None:
            self._numbers, self._numbers_at = self._summarize(self._record, now_s), now_s
        return facts(self._numbers, source)

    def _put_late(self, delta: dict[str, Any], *, all_: bool) -> None:
        """Say the entries that are not what was said before, as many as fit; the rest stays for the next step."""
        room = MOST_CHARS
        for key, entries in self._late.items():
            said: dict[str, Any] = self.full[key]
            changed: dict[str, Any] = {}
            for place in list(entries):
                if room <= 0 and not all_:
                    break
                entry = entries.pop(place)
                if said.get(str(place)) != entry:
                    changed[str(place)] = entry
                    room -= _chars(entry)
            if changed:
                self._say(key, changed)
                delta[key] = changed

    def _say(self, key: str, changed: Mapping[str, Any]) -> None:
        said = self.full[key]
        self._again += [(key, place) for place in changed if place not in said]
        said.update(changed)

    def _repeat(self, delta: dict[str, Any]) -> None:
        """Say some of what was said before once more, each entry in its turn."""
        if not delta:
            return
        for key, place in self._again[:AGAIN]:
            delta.setdefault(key, {}).setdefault(place, self.full[key][place])
        self._again = self._again[AGAIN:] + self._again[:AGAIN]

    def _set(self, delta: dict[str, Any], key: str, value: Any) -> None:
        if key not in self.full or self.full[key] != value:
            delta[key] = self.full[key] = value


def icons() -> dict[str, str]:
    """Return the outline of each state's icon."""
    return {state: look.icon for state, look in STATES.items()}


def _chars(entry: Sequence[Any] | int) -> int:
    """Estimate how long an entry is as JSON."""
    if isinstance(entry, int):
        return 12
    return 8 + sum(len(part) + 4 if isinstance(part, str) else 30 if isinstance(part, list) else 6 for part in entry)


def _of_budget(phrase: str, budget_usd: float) -> str:
    most = f"${budget_usd:,.2f}" if budget_usd >= 0.01 else dollars(budget_usd)
    return f"{phrase} of {most}" if phrase.lstrip("≈≥ ").startswith("$") else phrase


def _left(left_s: tuple[float, float] | None) -> str:
    """Write how much longer it will take, as an interval: `ends in 4–6 s`; empty where nobody can know."""
    if left_s is None:
        return ""
    low, high = (max(1, round(one)) for one in left_s)
    if high < 100:
        return f"ends in {low}–{high} s" if low < high else f"ends in {high} s"
    low, high = max(1, round(left_s[0] / 60)), max(1, round(left_s[1] / 60))
    return f"ends in {low}–{high} min" if low < high else f"ends in {high} min"
