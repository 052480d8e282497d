"""Word lists for finding the topic of an English prompt."""

from __future__ import annotations

LEADS = frozenset("about on for regarding concerning of between around".split())
HOLLOW_BEFORE_OF = frozenset(
    "list number lot kind sort set pair one each some any part most all terms case out instead because couple role "
    "task use paragraph summary version draft piece example review overview depend depends based".split()
)
STOPPERS = frozenset(
    "and or but so because which that who whom whose what when where why how if then than while using as with without "
    "by is are was were be been being will would can could should may might has have had do does did please given "
    "agree rests must".split()
)
STOPWORDS = STOPPERS | frozenset(
    "a an the this that these those it its it's itself they them their there here he she his her we our us you your i "
    "me my mine yours who's in into on onto of for from to at about over under between among through during before "
    "after above below up down out off again further once only own same too very just also not no nor any some all "
    "each every both few more most other another such as well better best good great first second third last next new "
    "one two three four five six seven eight nine ten many much several following according per via within across "
    "against toward towards around like unlike etc e.g i.e let let's you're you've you'll don't doesn't isn't aren't "
    "can't won't what's let’s you’re don’t it’s now still yet even rather quite often always never sometimes usually "
    "maybe perhaps".split()
)
# Words of instructions, personas and headings.
GENERIC = frozenset(
    "article essay story blog poem letter post newsletter piece question attempt contribution contributions adds "
    "careful reader sceptical answer reply respond response write draft compose explain describe discuss compare "
    "contrast evaluate assess analyse analyze analysis analyst research researcher researching investigate review "
    "reviewer critique critic criticise criticize summarise summarize summary synthesise synthesize synthesis combine "
    "merge plan planner planning propose proposal proposals suggest suggestion suggestions recommend recommendation "
    "recommendations list give provide produce create make find identify consider think pick choose select decide "
    "tell show name outline know knows expert specialist assistant helpful senior experienced professional act role "
    "task questions topic subject text words word sentence sentences paragraph paragraphs bullet bullets points point "
    "short brief briefly concise clear clearly simple detailed thorough carefully exactly strictly format markdown "
    "json style tone readers input inputs output outputs result results based use using used need needs needed want "
    "wants please sure keep focus include including avoid work works working take help thing things way ways kind "
    "different possible important main key example examples writer editor judge report agent agents team step-by-step "
    "user users finding findings background assessment trade-off trade-offs tradeoff tradeoffs option options "
    "criterion criteria strength strengths weakness weaknesses risk risks step steps goal caveat caveats verdict "
    "agreement agree differ difference differences decision effort cost costs fit maintenance reversibility aspect "
    "aspects weight high medium low early late depends depend worth check evidence claim claims assumption "
    "assumptions owner measure small trial constraint constraints choice choices case cases reason reasons side sides "
    "change changes requirement requirements position source sources open uncertain confidence reading practice "
    "situation starting gap gaps detail details concern concerns priority comment comments source's overall argument "
    "arguments settle settled likely later time week day days weeks months people person someone everyone".split()
)
