"""Normal random numbers with the same bits on every machine.

The numbers are the inverse of the normal distribution function at uniform numbers from the random bits of Philox, which
NumPy keeps stable (NEP 19, unlike the methods of its generators). The inverse is computed with additions,
multiplications, divisions and square roots only, one NumPy operation after the other. IEEE 754 determines the result of
each, so that no processor, library or number of threads can change a bit. Functions such as ``log`` and ``exp`` differ
in their last bit between libraries and are not used.

Source: Wichura, Algorithm AS 241: the percentage points of the normal distribution, Applied Statistics 37 (1988),
routine PPND16, with a relative accuracy of about 1e-16. Departure: the logarithm is the series of the inverse
hyperbolic tangent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_Floats = NDArray[np.float64]

#: Numbers computed at a time; small enough for the cache of a processor.
_CHUNK = 1 << 14

_CENTRAL = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_TAIL = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0),
        *(1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
)
_FAR_TAIL = (
    (
        *(6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1),
        *(2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    ),
    (
        *(1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2),
        *(7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
    ),
)
_LN_2 = 0.6931471805599453


def normal_numbers(seed: np.random.SeedSequence, out: _Floats) -> None:
    """Fill a contiguous array with standard normal numbers.

    Args:
        seed: Decides the numbers. They do not depend on the size of the array: a shorter one has the first of them.
        out: The array to fill.

    Example:
        >>> numbers = np.empty(3)
        >>> normal_numbers(np.random.SeedSequence(0), numbers)
        >>> [number.hex() for number in numbers.tolist()]
        ['-0x1.190340ffe4519p+1', '-0x1.4ceccef525ffcp-1', '-0x1.2430aace88ef7p-4']
    """
    bits = np.random.Philox(seed)
    flat = out.reshape(-1)
    for first in range(0, len(flat), _CHUNK):
        part = flat[first : first + _CHUNK]
        # The middle of one of 2^53 equal intervals of (-1/2, 1/2); exact in float64.
        numbers = (bits.random_raw(len(part)) >> np.uint64(11)).astype(np.int64) - (1 << 52)
        part[:] = (numbers + 0.5) * 2.0**-53
        _to_normal(part)


def _to_normal(centered: _Floats) -> None:
    """Replace ``p - 1/2`` by the ``p``-quantile of the normal distribution."""
    outer = np.flatnonzero(np.abs(centered) > 0.425)
    tails = centered[outer]
    square = 0.180625 - centered * centered
    centered *= _ratio(_CENTRAL, square)
    centered[outer] = np.copysign(_upper_quantile(0.5 - np.abs(tails)), tails)


def _upper_quantile(share: _Floats) -> _Floats:
    """Return the numbers that a normal number exceeds with these probabilities, which are at most 0.075."""
    root = np.sqrt(-_logarithm(share))
    return np.where(root <= 5, _ratio(_TAIL, root - 1.6), _ratio(_FAR_TAIL, root - 5))


def _logarithm(values: _Floats) -> _Floats:
    fraction, exponent = np.frexp(values)
    small = fraction < 0.7071067811865476
    fraction = np.where(small, 2 * fraction, fraction)
    exponent = exponent - small
    ratio = (fraction - 1) / (fraction + 1)
    square = ratio * ratio
    series = np.full_like(square, 1 / 25)
    for odd in range(23, 0, -2):
        series *= square
        series += 1 / odd
    found: _Floats = exponent * _LN_2 + 2 * ratio * series
    return found


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], at: _Floats) -> _Floats:
    """Return the ratio of two polynomials, by Horner's rule."""
    above, below = (_polynomial(each, at) for each in coefficients)
    found: _Floats = above / below
    return found


def _polynomial(coefficients: tuple[float, ...], at: _Floats) -> _Floats:
    found = np.full_like(at, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        found *= at
        found += coefficient
    return found
