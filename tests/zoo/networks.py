"""All networks of the zoo by name."""

from zoo.idioms import IDIOMS
from zoo.published import PUBLISHED

ZOO = IDIOMS | PUBLISHED
