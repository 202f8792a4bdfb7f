"""The four kinds of truth that a saliency map can be compared with. Each is a separate question; they are not averaged.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: Kind of truth. ``"data"``: where the class information is, known by construction of the images. ``"use"``: what this
#: network uses, known by construction of the network. ``"human"``: what people annotated. ``"intervention"``: how the
#: output reacts to a change of pixels, image or network.
Truth: TypeAlias = Literal["data", "use", "human", "intervention"]

#: Stands for the truth of a metric that describes the map alone.
NO_TRUTH: Literal["none"] = "none"


@dataclass(frozen=True)
class TruthWords:
    """Description of a kind of truth for readers who only know what a saliency map is.

    Attributes:
        question: The question about a map.
        source: Where the answer comes from.
        low: What a low score means.
        silent: What a score of this kind does not show.
    """

    question: str
    source: str
    low: str
    silent: str


#: The kinds, in the order in which tables show them.
TRUTHS: Mapping[str, TruthWords] = {
    "data": TruthWords(
        "Does the map highlight the class information?",
        "The images are generated, so it is known which pixels distinguish the classes.",
        "The map highlights pixels without class information, or misses pixels that have it.",
        "Whether the network uses that information. If it uses only half of it, or something correlated with it, a "
        "faithful map gets a low score.",
    ),
    "use": TruthWords(
        "Does the map highlight what this network uses?",
        "The network is constructed so that it is known which pixels can affect its output.",
        "The map highlights pixels that provably cannot change the output, or misses pixels that do.",
        "Whether the network should use these pixels, and how well a method works on networks that were not "
        "constructed for this purpose.",
    ),
    "human": TruthWords(
        "Does the map highlight what people annotated?",
        "People annotated the object, or the evidence for the class, in each image.",
        "The map and the people disagree. It remains open which of them describes the network.",
        "Whether the network looks where people look. A faithful map of a network that uses the background gets a low "
        "score; a map that finds objects without calling the network gets a high one.",
    ),
    "intervention": TruthWords(
        "Does the output change when what the map highlights is changed?",
        "Pixels, the image or the network are changed, and the effect is measured.",
        "Changing what the map highlights has little effect, or changing the rest has a large one.",
        "Whether the network is reliable on changed images: it may react to the change itself rather than to the "
        "missing information, and other ways of changing images give other rankings.",
    ),
}


def question_of(truth: str) -> str:
    """Return the question of a kind of truth as a heading; for ``"none"``, what is described instead.

    Example:
        >>> question_of("use"), question_of("none")
        ('Use: does the map highlight what this network uses?', 'No truth: properties of the map alone')
    """
    if truth not in TRUTHS:
        return "No truth: properties of the map alone"
    question = TRUTHS[truth].question
    return f"{truth.capitalize()}: {question[0].lower()}{question[1:]}"
