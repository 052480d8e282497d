"""The options of the mock server, for the command line and the starters."""

from __future__ import annotations

import argparse
import math
import re
import secrets
from collections.abc import Callable

from agent_magic.simulator import batches
from agent_magic.simulator.directives import FAULTS, read_script
from agent_magic.simulator.limits import Allowance, Capacity
from agent_magic.simulator.models import LATENCY_FORMS, MODELS, parse_latency, read_numbers
from agent_magic.simulator.service import Settings

HOST = "127.0.0.1"
EPILOG = f"""\
directives in the prompt change the response:
  [[fault:NAME]]   {", ".join(FAULTS[:7])},
                   {", ".join(FAULTS[7:])}
  [[status:529]]   an error, also with retry_after=1 error_code=... message=... times=2
  [[tool:NAME {{"a": 1}}]]   a call of this tool, where tools are offered; several are one response
  [[text:I look it up.]]   the text before the calls, or alone; [[text:]] is an answer without content
  [[think]] [[think:Hm.]] [[think:redacted]]   a thinking block, with a signature that is checked
  [[broken]]   arguments that are no JSON, of tools with eager_input_streaming
  [[expire]]   in a batch: it expires unanswered
  [[ttft:2.0]] [[pace:50]] [[tokens:50]] [[stop:refusal]] [[echo]]
  [[stop:max_tokens]]   cuts the last call in the middle of its arguments
  [[stop:pause_turn times=1]]   a search that goes on in the next response
  [[NAME@2:...]] [[NAME@2-4:...]]   holds in turn 2, after the first tool results; calls hold in turn 1
without [[tool]], tools that fit the words of the prompt are called, one to three times, with arguments that fit.
a line of a script:  {{"match": "text or /regex/", "text": "...", "turn": 2, "times": 2, ...}}
"""
TOKEN = re.compile(r"[A-Za-z0-9_-]{1,128}")


def make_parser(*, exit_on_error: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent-magic simulate",
        description="A mock server of the Messages API on 127.0.0.1. Prints a line of JSON with its url, then serves.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        exit_on_error=exit_on_error,
    )
    add = parser.add_argument
    add("--host", choices=[HOST], default=HOST, help="the only address it listens on")
    add("--port", type=int, default=0, help="port (default: any free one)")
    add("--seed", type=int, default=0, help="changes every text and duration (default 0)")
    add("--latency", type=_option(parse_latency), default="real", help=LATENCY_FORMS)
    add("--rpm", type=_positive, help="requests per minute and model class (default: the Start tier)")
    add("--itpm", type=_positive, help="uncached input tokens per minute")
    add("--otpm", type=_positive, help="output tokens per minute")
    add("--burst", type=_positive, default=1.0, help="seconds' worth of a given limit that may pass at once (1)")
    add("--unlimited", action="store_true", help="no limits and no limit headers")
    add("--script", type=_option(read_script), default=(), help="file of scripted responses, one JSON object per line")
    add("--slips", type=_option(_slips), default={}, help="how often a choice is wrong, by family: haiku=0.2,opus=0.02")
    add("--batch", type=_option(batches.parse), default=batches.Pace(), metavar="PACE", help=batches.FORMS)
    add("--slots", type=_slots, default=math.inf, help="requests it works on at once; the others queue (no limit)")
    add("--shared-rate", type=_positive, default=math.inf, help="tokens a second that all answers share (no limit)")
    add("--cap", type=_positive, default=math.inf, help="with --shared-rate: tokens a second of one answer at most")
    add(
        "--prompt-rate",
        type=_positive,
        help="with --shared-rate: input tokens a second of reading alone",
    )
    add("--token", type=_token, help="path prefix that requests must have; 'auto' draws a random one")
    add("--parent-pid", type=int, help="end when this process is gone")
    add("--until-stdin-closes", action="store_true", help="end when standard input ends")
    return parser


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e12:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number > 0")
    return number


def _slots(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer >= 1")
    return number


def _slips(text: str) -> dict[str, float]:
    try:
        found = read_numbers(text)
    except ValueError:
        raise ValueError(f"slips are FAMILY=SHARE with commas, such as haiku=0.2,opus=0.02, got {text!r}") from None
    families = {model.family for model in MODELS.values()}
    if not (found.keys() <= families and all(0 <= one <= 1 for one in found.values())):
        raise ValueError(f"slips are shares from 0 to 1 of {', '.join(sorted(families))}, got {text!r}")
    return found


def _option(read: Callable[[str], object]) -> Callable[[str], object]:
    """Return a parser of an option's value; `argparse` shows its messages unchanged."""

    def typed(text: str) -> object:
        try:
            return read(text)
        except (ValueError, OSError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return typed


def _token(text: str) -> str:
    if not TOKEN.fullmatch(text):
        raise argparse.ArgumentTypeError("a token has letters, digits, - and _ only")
    return secrets.token_urlsafe(24) if text == "auto" else text


def settings_of(options: argparse.Namespace) -> Settings:
    allowance = Allowance(options.rpm, options.itpm, options.otpm, options.burst, options.unlimited)
    capacity = Capacity(options.slots, options.shared_rate, options.cap, options.prompt_rate)
    return Settings(options.seed, options.latency, allowance, options.script, options.slips, options.batch, capacity)
