"""The sentences answers are made of: neutral, hedged, without facts and figures of their own.

A template may name `{topic}`, `{a}` and `{b}`: phrases of the prompt, placed where number and article do not matter.
"""

from __future__ import annotations

import re

OPENINGS: dict[str, tuple[str, ...]] = {
    "adviser": (
        "For {topic}, the sensible default is the option that keeps later changes cheap, unless the hard constraint turns out to lie with {a}.",
        "The short version: with {topic} in mind, start from {a}, and treat {b} as the thing to test first.",
        "There is no single right answer for {topic}, but there is a reasonable order in which to decide: {a} first, {b} second.",
        "My suggestion for {topic} is to let {a} lead the decision and to keep {b} as a second check.",
    ),
    "researcher": (
        "This is an overview of the material on {topic}. It separates what can be said in general from what has to be looked up.",
        "The material for {topic} falls into a few strands. {a} and {b} come up again and again, so they are treated first.",
        "What follows gathers the main lines for {topic}, notes how firm each one is, and says what is still open.",
    ),
    "analyst": (
        "Three considerations dominate for {topic}: {a}, {b}, and how easily the decision can be undone.",
        "With {topic} in view, the alternatives differ less in what they can do than in what they ask of the people who run them.",
        "The assessment below looks at {topic} from the side of {a} first, because that is where a wrong choice would be felt soonest.",
    ),
    "planner": (
        "The plan for {topic} goes in small steps that each leave something usable behind. The order matters more than the dates.",
        "For {topic} the uncertain parts come first: the questions around {a} are settled before anything is built on them.",
        "Below is a plan for {topic}. Each step names what it needs and how to tell that it is done.",
    ),
    "writer": (
        "Any honest account of {topic} has to begin with a plain question: what would be missed without it?",
        "It is tempting to start with {a}. For {topic}, though, the better starting place is the person who has to live with the outcome.",
        "Most writing on {topic} starts with the tools. This piece starts with the need, and comes to {a} from there.",
    ),
    "critic": (
        "The proposal for {topic} is sound in outline. Its weak spots are in what it takes for granted.",
        "Read closely, the case made for {topic} rests on {a}. If that does not hold, most of the rest falls with it.",
        "There is much to keep here. The remarks below concern the parts that a sceptical reader would question first.",
    ),
    "synthesiser": (
        "Taken together, the contributions for {topic} agree on more than their wording suggests. The real disagreement is narrow.",
        "The inputs look at {topic} from different sides. Put next to each other they give a usable answer, with one point left to decide.",
        "Across the material for {topic}, {a} is the common thread, and {b} is where the views part.",
    ),
}

REMARKS: dict[str, tuple[str, ...]] = {
    "adviser": (
        "worth settling early, because later choices build on it",
        "easy to underestimate; a small trial would show how much work it really is",
        "mostly a matter of who will maintain the result",
        "less urgent than it looks, since it can be changed later at little cost",
        "a good fit as long as the requirements stay as they are today",
        "the part where prior experience saves the most time",
        "fine for a first version; look at it again when real use shows where it pinches",
        "only matters if the load or the audience grows beyond what is planned now",
        "simple to begin with, and simple to explain to the next person",
    ),
    "researcher": (
        "described consistently in general sources; the details vary with context",
        "often mentioned, seldom measured; treat strong statements with care",
        "well understood in principle, less so at the edges",
        "the literature and the practice use the words differently, so definitions come first",
        "depends on local conditions; comparable cases would help",
        "a recurring theme, and a likely place to find first-hand reports",
        "documented mainly by those who have an interest in it",
        "changes quickly; anything older should be checked again",
    ),
    "analyst": (
        "weighs heavily, because mistakes here are costly to undo",
        "separates the alternatives more clearly than any other criterion",
        "roughly equal on all sides, so it should not decide the matter",
        "favours the simpler alternative while the scope is small",
        "favours the more structured alternative once several people are involved",
        "sensitive to assumptions; the conclusion would turn if they changed",
        "an indirect cost that tends to show up late",
        "a benefit only for those who use it regularly",
    ),
    "writer": (
        "the part that readers will recognise from their own work",
        "what remains when the details are forgotten",
        "seldom the reason to begin, often the reason to stay",
        "easier to show than to explain",
        "where good intentions meet the calendar",
    ),
    "critic": (
        "asserted rather than shown; one worked example would help",
        "left vague at the point where the reader needs a decision",
        "convincing, and could be stated with more confidence",
        "the opposite case is not considered",
        "depends on an assumption that should be written down",
        "correct as far as it goes, but silent about the effort involved",
        "mixes two questions that deserve separate answers",
        "a claim of this size needs a source or a softer wording",
    ),
    "synthesiser": (
        "named by all sides as a condition, with different weight",
        "seen as settled by one side and as open by the other; worth a direct question",
        "where the views complete each other and can simply be combined",
        "differs in wording more than in substance",
        "raised only once, but too important to drop",
        "a shared concern that no single contribution resolves",
        "agreed on in principle; the timing is what differs",
    ),
}
REMARKS["planner"] = REMARKS["adviser"]

STEPS = (
    "Write down what the work on {topic} must achieve, in two or three sentences that everyone involved accepts.",
    "List the constraints around {a}; mark those that cannot move.",
    "Collect two or three comparable cases and read how they dealt with {a}.",
    "Agree on one sign that would make you stop or change course.",
    "Try the part that concerns {a} in the smallest form that can fail, and note what was surprising.",
    "Look at {b} on the same terms, and compare.",
    "Show the first result to someone who was not involved, and listen more than you explain.",
    "Decide who looks after {a} once the first version is in use.",
    "Put the decision and its reasons on one page, so that it can be revisited without starting over.",
    "Set a date to look at {b} again, with whatever has been learned by then.",
)
LOOKUPS = (
    "Begin with reference works and current documentation on {a}; note the date of each.",
    "Find two independent descriptions of {b} and list where they disagree.",
    "Ask someone with first-hand experience of {topic} what they would do differently.",
    "Look for reports of failure as well as success; the former say more about {a}.",
    "Trace the most repeated statement on {topic} back to where it was first made.",
    "Note which questions remain open after that, and who could answer them.",
)
IMPROVEMENTS = (
    "State the main claim on {topic} in the first paragraph, in one sentence.",
    "Give one concrete case for {a}, with its circumstances.",
    "Name the strongest objection concerning {b} and answer it openly.",
    "Say what is not covered, so that nobody expects it.",
    "Separate observations from opinions in what is said on {a}.",
    "Shorten the parts that repeat each other and use the room for {b}.",
    "End with the decision that is asked of the reader.",
)
RECOMMENDATIONS = (
    "Begin with the simplest arrangement that covers {a}, and leave {b} for a second round. That keeps the first step small and the way back open.",
    "Give {a} priority. If resources are short, a plain solution for {b} will do for the time being.",
    "Go ahead, with one condition: {a} should be checked on a small scale before anything depends on it.",
    "Prefer the option that the people involved already know, provided it covers {a}. Familiarity tends to outweigh modest technical advantages.",
    "Keep both ways open for now, test {a} and {b} side by side, and commit once the difference shows in your own setting.",
)
CAVEATS = (
    "This answer is general. It does not know your deadlines, your people or your budget, and any of these could turn it around.",
    "Much of this depends on {a}; if the situation there differs from the usual, the order of the points above changes too.",
    "None of the above replaces a look at current documentation for {topic}, which may have moved on.",
    "Where this text says *usually* or *tends to*, exceptions are real and worth asking about.",
)
TRADE_OFFS = (
    "More attention to {a} usually means less freedom in {b}; few settings allow both to be maximised.",
    "Speed at the beginning is often paid back later as maintenance. For {topic} that exchange can still be worth it.",
    "A narrow scope makes {a} manageable, at the price of leaving some users unserved for a while.",
    "Standard solutions are easier to staff and to replace; tailored ones can fit {a} better.",
)
QUESTIONS = (
    "How much variation is there in {a} between comparable settings?",
    "Who would notice first if {b} were handled badly?",
    "Which of the common statements on {topic} come from direct observation?",
    "What would a fair comparison of {a} and {b} look like?",
    "Has anyone tried the opposite approach, and why did they stop?",
)
RISKS = (
    "**Work on {a} takes longer than expected.** Keep the scope of the first step fixed and move the date instead.",
    "**Nobody feels responsible for {b}.** Name one person before the work starts.",
    "**The goal shifts on the way.** Write down what was agreed, and change it only on purpose.",
    "**Early success hides a weak spot in {a}.** Plan one deliberate stress test.",
)
PARAGRAPHS = (
    "Consider {a}. On paper this is a detail; in daily work it decides whether people come back. That is why it deserves a plain description before any judgement, and why a short example says more than a long argument.",
    "Then there is {b}. Opinions differ here, and for understandable reasons: those who begin see the effort, those who have been at it for a while see the result. Both are right about the part they see.",
    "What does this mean for {topic}? First, that the order of decisions matters. Second, that a modest beginning is no lack of ambition. It is a way of learning what the next step should be.",
    "None of this is dramatic. It asks for patience with {a}, some honesty about {b}, and the willingness to change course when the first results come in.",
    "It helps to imagine the situation a year from now. Some choices around {a} will look obvious, others will look odd. The ones that age well tend to be those that could be explained in a sentence.",
    "Perhaps the most useful habit is to write things down: what was expected of {a}, what happened instead, and what {b} looked like from the outside. Memory is kind to plans; notes are kinder to readers.",
)
CLOSINGS = (
    "In the end, the question of {topic} is less a matter of finding the perfect answer than of keeping the question open long enough to find a good one.",
    "The conclusion is a quiet one: begin small, stay honest about {a}, and let experience decide the rest.",
    "What remains is an invitation to try it, to look closely, and to say plainly what was found.",
)
ASPECTS = (
    ("Effort to start", ("low", "moderate", "moderate to high")),
    ("Day-to-day upkeep", ("low", "moderate", "depends on the team")),
    ("Reversibility", ("easy", "possible with some work", "hard once others depend on it")),
    ("Fit for the stated need", ("good", "good with adjustments", "partial")),
    ("Clarity for newcomers", ("good", "needs an introduction", "mixed")),
)
_PRACTICAL = ("setup effort", "day-to-day use", "long-term upkeep", "documentation", "room for change", "training")
_REFLECTIVE = (
    "common practice",
    "first-hand experience",
    "the usual exceptions",
    "recent changes",
    "practical consequences",
    "the choice of words",
)
GENERIC_TERMS = {
    **dict.fromkeys(("adviser", "analyst", "planner"), _PRACTICAL),
    **dict.fromkeys(("researcher", "writer", "critic", "synthesiser"), _REFLECTIVE),
}
FEWEST_TERMS = 6

_POOLS = (
    *OPENINGS.values(),
    *REMARKS.values(),
    *(STEPS, LOOKUPS, IMPROVEMENTS, RECOMMENDATIONS, CAVEATS, TRADE_OFFS, QUESTIONS, RISKS, PARAGRAPHS, CLOSINGS),
    *(_PRACTICAL, _REFLECTIVE, ("speaks puts adds glance part side views",)),
    *((aspect, *values) for aspect, values in ASPECTS),
)
# A chain of answers must keep to the topic it began with, so the words of the templates are no topic for the next one.
OWN_WORDS = frozenset(re.findall(r"[a-z][\w-]*", re.sub(r"\{\w+\}", "", " ".join(map(" ".join, _POOLS)).lower())))
