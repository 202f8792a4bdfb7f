"""Checks of values that users give, each with one form of message, and the errors about parameters.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from xaibench.core.messages import listed, unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ParameterError(ValueError):
    """A parameter has a value that cannot be used.

    Args:
        message: The value received, the values expected, and what to do.
        parameter: Name of the parameter.

    Attributes:
        parameter: Name of the parameter; errors of suites name it after its table.
    """

    def __init__(self, message: str, *, parameter: str) -> None:
        super().__init__(message)
        self.parameter = parameter

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_error, (type(self), self.args[0], self.parameter)


class UnknownParameterError(ParameterError, TypeError):
    """A part does not have a parameter of this name."""


def _restore_error(kind: type[ParameterError], message: str, parameter: str) -> ParameterError:
    return kind(message, parameter=parameter)


def check_names(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an error if a name is not among the known ones.

    Args:
        owner: The part, as the error names it: ``"LIME"``, ``"Metric 'iou'"``.
        given: Names of parameters.
        known: The parameters of the part, in the order in which the error lists them.

    Raises:
        UnknownParameterError: Names the nearest parameter, and lists all.

    Example:
        >>> check_names("LIME", ["n_sample"], ["n_samples", "seed"])
        Traceback (most recent call last):
            ...
        xaibench.core.checks.UnknownParameterError: LIME has no parameter 'n_sample'; did you mean 'n_samples'? \
Known: n_samples, seed.
    """
    known = list(known)
    for name in given:
        if name not in known:
            raise UnknownParameterError(unknown(f"{owner} has no parameter", name, known), parameter=name)


#: Unicode categories: control characters, formatting (such as marks of the writing direction), line separators, and
#: surrogates (bytes of file names that are not UTF-8).
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Characters of these categories that some languages are spelled with: the zero-width (non-)joiner.
_JOINERS = "\u200c\u200d"
#: Letters of other scripts that look like Latin ones (Unicode Technical Standard 39, the most frequent ones).
_LOOKALIKES = str.maketrans(
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0405\u0406\u0408"
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf",
    "ABEKMHOPCTXSIJaeopcyxsijABEZHIKMNOPTYXo",
    _JOINERS,  # left out
) | {0xFF00 + ascii_code - 0x20: ascii_code for ascii_code in range(0x21, 0x7F)}  # of double width


def to_latin(label: str) -> str:
    """Replace characters that look like Latin letters by these, such as Cyrillic ones and those of double width."""
    return unicodedata.normalize("NFC", label).translate(_LOOKALIKES)


def check_labels(what: str, labels: Iterable[str]) -> None:
    r"""Check that labels can be told apart by eye, and cannot disturb the text around them.

    Args:
        what: What they name, as the error says it: ``"class"``.
        labels: The labels.

    Raises:
        ValueError: If a label has control characters, marks of the writing direction or invisible characters, or two
            labels look alike.

    Example:
        >>> check_labels("class", ["cat", "c\u0430t"])
        Traceback (most recent call last):
            ...
        ValueError: class names 'cat' and 'c\u0430t' look alike; rename one.
    """
    seen: dict[str, str] = {}
    for label in labels:
        hidden = [char for char in label if unicodedata.category(char) in _HIDDEN and char not in _JOINERS]
        if hidden:
            raise ValueError(f"{what} name {label!a} has the invisible character {hidden[0]!a}; rename it.")
        other = seen.setdefault(to_latin(label), label)
        if other != label:
            raise ValueError(f"{what} names {other!a} and {label!a} look alike; rename one.")


def check_values(tensor: Any, name: str) -> None:
    """Check that a tensor holds real numbers in memory, one after another.

    Args:
        tensor: A tensor of torch.
        name: Name of the parameter.

    Raises:
        TypeError: If it is complex, quantized or sparse, or on the device ``meta``, where tensors have no values.
    """
    if tensor.is_complex() or tensor.is_quantized:
        raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}.")
    if tensor.is_meta or "strided" not in str(tensor.layout):
        kind = "on the device meta, which has no values" if tensor.is_meta else f"with the layout {tensor.layout}"
        raise TypeError(f"{name} must be a dense tensor with values, got one {kind}.")


def check_finite(values: Any, name: str) -> None:
    """Check that no sample contains NaN or infinity.

    Args:
        values: ``[N, ...]``, an array or a tensor.
        name: Name of the parameter.

    Raises:
        ValueError: Names the samples.

    Example:
        >>> import numpy as np
        >>> check_finite(np.array([[1.0, 2.0], [np.nan, 0.0]]), "maps")
        Traceback (most recent call last):
            ...
        ValueError: maps must be finite, got NaN or infinity in samples 1. ...
    """
    import numpy as np

    finite = values.isfinite() if hasattr(values, "isfinite") else np.isfinite(values)
    if not finite.all():
        by_sample = finite.reshape(len(values), math.prod(values.shape[1:])).all(1)
        samples = listed([number for number, is_finite in enumerate(by_sample.tolist()) if not is_finite], most=5)
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in samples {samples}. Leave these out, or check where they "
            "come from."
        )


def check_map_shape(maps: Any, shape: Iterable[int], name: str = "maps") -> None:
    """Check that there is one map, or mask, for each image.

    Args:
        maps: An array or a tensor.
        shape: Shape of the images without channels, ``[N, H, W]``, or ``[N, D, H, W]`` for volumes.
        name: Name of the parameter.

    Raises:
        ValueError: If the shape is another one.
    """
    got, expected = list(maps.shape), list(shape)
    if got != expected:
        hint = " Reduce the channels first." if len(got) == len(expected) + 1 else ""
        axes = "[N, H, W]" if len(expected) == 3 else "[N, D, H, W]"
        raise ValueError(f"{name} must be {axes}, here {expected}, got {got}.{hint}")


def check_count(name: str, value: object, least: int = 1, *, owner: str = "", none: str = "") -> None:
    """Check that a value is an integer, of Python or numpy, of at least ``least`` and below 2**63.

    Args:
        name: Name of the parameter.
        value: The value that was given.
        least: The smallest accepted value.
        owner: The class that has the parameter; empty for a function.
        none: Meaning of None, such as ``"for all"``; empty if None is an error.

    Raises:
        ParameterError: Gives the value, and the expected ones.

    Example:
        >>> check_count("n_samples", 0, owner="LIME")
        Traceback (most recent call last):
            ...
        xaibench.core.checks.ParameterError: LIME(n_samples=0): expected an integer of at least 1.
        >>> check_count("samples", None, none="for all")
    """
    if value is None and none:
        return
    if not (isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= int(value) < 2**63):
        hint = f", or None {none}" if none else ""
        hint = f"{hint}, below 2**63" if is_beyond_int64(value) else hint
        raise ParameterError(
            f"{_describe(owner, name, value)}: expected an integer of at least {least}{hint}.", parameter=name
        )


def check_amount(name: str, value: object, *, above: bool = True, owner: str = "") -> None:
    """Check that a value is a finite number above 0, or (``above=False``) of at least 0.

    Args:
        name: Name of the parameter.
        value: The value that was given.
        above: Whether 0 is an error.
        owner: The class that has the parameter; empty for a function.

    Raises:
        ParameterError: Gives the value, and the expected ones.

    Example:
        >>> check_amount("lr", -0.1)
        Traceback (most recent call last):
            ...
        xaibench.core.checks.ParameterError: lr=-0.1: expected a number above 0.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool) and not is_beyond_int64(value)
    number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    if not (math.isfinite(number) and (number > 0 or (number == 0 and not above))):
        expected = "above 0" if above else "of at least 0"
        expected = f"{expected}, below 2**63" if is_beyond_int64(value) else expected
        raise ParameterError(f"{_describe(owner, name, value)}: expected a number {expected}.", parameter=name)


def is_beyond_int64(value: object) -> bool:
    """Return whether a value is an integer that neither torch nor numpy can hold."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def check_choice(name: str, value: object, choices: Iterable[str], *, owner: str = "") -> None:
    """Check that a value is one of the choices.

    Args:
        name: Name of the parameter.
        value: The value that was given.
        choices: The accepted values, in the order in which the error lists them.
        owner: The class that has the parameter; empty for a function.

    Raises:
        ParameterError: Gives the value and the choices.

    Example:
        >>> check_choice("finetune", "tail", ("head", "all"))
        Traceback (most recent call last):
            ...
        xaibench.core.checks.ParameterError: finetune='tail': expected one of 'head', 'all'.
    """
    choices = list(choices)
    if not (isinstance(value, str) and value in choices):
        expected = ", ".join(map(repr, choices))
        raise ParameterError(f"{_describe(owner, name, value)}: expected one of {expected}.", parameter=name)


def _describe(owner: str, name: str, value: object) -> str:
    return f"{owner}({name}={value!r})" if owner else f"{name}={value!r}"


def plain_array(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Check that an array can be converted to torch without loss.

    Args:
        values: Any array.
        name: Name of the array in errors.

    Returns:
        The array itself; numbers wider than float64 are converted to float64.

    Raises:
        TypeError: For a masked array, whose hidden values would be used like any others.
        ValueError: For numbers beyond the range of float64.

    Example:
        >>> import numpy as np
        >>> plain_array(np.ma.masked_equal([1.0, 0.0], 0.0), "maps")
        Traceback (most recent call last):
            ...
        TypeError: maps: got a masked array, expected plain numbers; fill its holes first, such as maps.filled(0).
    """
    import numpy as np

    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{name}: got a masked array, expected plain numbers; fill its holes first, such as {name}.filled(0)."
        )
    if values.dtype.kind != "f" or values.dtype.itemsize <= 8:
        return values
    with np.errstate(over="ignore"):
        converted = values.astype(np.float64)
    if (np.isfinite(values) & ~np.isfinite(converted)).any():
        raise ValueError(f"{name}: got {values.dtype} numbers beyond the range of float64; scale them down.")
    return converted


#: Largest number of classes that are named by their number.
_MOST_CLASSES = 100_000


def numbered_classes(largest: int, what: str) -> tuple[str, ...]:
    """Return names for classes from 0 to ``largest``: their numbers.

    Args:
        largest: Largest label of the data, which may be damaged.
        what: Where the labels come from, for the message.

    Raises:
        ValueError: If there would be more than 100,000 classes.

    Example:
        >>> numbered_classes(2, "labels")
        ('0', '1', '2')
    """
    if largest >= _MOST_CLASSES:
        raise ValueError(
            f"{what}: got a label of {largest}, expected class numbers below {_MOST_CLASSES:,}. Number the classes "
            "from 0, or give their names."
        )
    return tuple(map(str, range(largest + 1)))
