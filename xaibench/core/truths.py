"""The four kinds of truth that a saliency map can be held to: each a question of its own, none averaged with another.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: What a map is held to. ``"data"``: where the class information is, by construction of the images. ``"use"``: what
#: this network uses, by construction of the network. ``"human"``: what people marked. ``"intervention"``: what happens
#: when something is changed.
Truth: TypeAlias = Literal["data", "use", "human", "intervention"]

#: In place of a truth, of a metric that describes the map alone.
NO_TRUTH: Literal["none"] = "none"


@dataclass(frozen=True)
class TruthWords:
    """A kind of truth in words, for people who know only what a saliency map is.

    Attributes:
        question: What it asks of a map.
        source: Where the answer comes from.
        low: What a low score means.
        silent: What no score of this kind can tell.
    """

    question: str
    source: str
    low: str
    silent: str


#: The kinds, in the order in which tables show them.
TRUTHS: Mapping[str, TruthWords] = {
    "data": TruthWords(
        "Does the map lie where the class information is?",
        "The images are generated: which pixels tell the classes apart is decided when they are made.",
        "The map marks pixels that tell nothing of the class, or misses those that do.",
        "Whether the network uses that information: of one that reads half of it, or something that goes along with "
        "it, a faithful map scores badly.",
    ),
    "use": TruthWords(
        "Does the map lie on what this network uses?",
        "The network is built so that it is certain which pixels can matter to it.",
        "The map marks pixels that provably cannot change the output, or misses those that do.",
        "Whether what the network uses is what it should use; and how well a method does on a network that was not "
        "built for the purpose.",
    ),
    "human": TruthWords(
        "Does the map lie where people point?",
        "People marked the object, or what speaks for the class, in each image.",
        "The map and the people disagree; which of them describes the network stays open.",
        "Whether the network looks where people look: a faithful map of one that goes by the background scores badly, "
        "a map that finds objects without asking it scores well.",
    ),
    "intervention": TruthWords(
        "Does the output change when what the map marks is changed?",
        "It is tried: pixels, the image or the network are changed, and what comes of it is measured.",
        "Changing what the map marks does little, or changing what it leaves out does much.",
        "Whether the changed image is one that the network knows: it may answer to the change rather than to what is "
        "gone, and other ways of changing rank methods otherwise.",
    ),
}


def question_of(truth: str) -> str:
    """What a kind of truth asks, as a heading; for what asks for none, what it is instead.

    Example:
        >>> question_of("use"), question_of("none")
        ('Use: does the map lie on what this network uses?', 'No truth: what the map alone looks like')
    """
    if truth not in TRUTHS:
        return "No truth: what the map alone looks like"
    question = TRUTHS[truth].question
    return f"{truth.capitalize()}: {question[0].lower()}{question[1:]}"
