"""Random damage of files, for the fuzzers of readers."""

import re


def flip(rng, content):
    damaged = bytearray(content)
    for _ in range(rng.choice([1, 8, 64])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(rng, content):
    return content[: rng.randrange(len(content))]


def grow(rng, content):
    return content + rng.randbytes(rng.choice([1, 1000]))


def forge(rng, content):
    """Large or negative numbers where a header may state a size."""
    damaged, at = bytearray(content), rng.randrange(min(len(content), 400))
    damaged[at : at + 4] = rng.choice(
        [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"-999"]
    )
    return bytes(damaged)


def restate(rng, content):
    """Another number where a text states one."""
    numbers = list(re.finditer(rb"\d+", content[: 1 << 20]))
    if not numbers:
        return flip(rng, content)
    place = rng.choice(numbers)
    number = rng.choice([b"999999999", b"9" * 30, b"9" * 400, b"-7", b"0", b"1e308", b"inf", b"nan"])
    return content[: place.start()] + number + content[place.end() :]


KINDS = (flip, cut, grow, forge, restate)


def damage(rng, files):
    """Damage one of some files; return it, its sound content, and what was done."""
    file, kind = rng.choice(files), rng.choice(KINDS)
    content = file.read_bytes()
    file.write_bytes(kind(rng, content))
    return file, content, f"{file.name}, {kind.__name__}"


def places(value, path=()):
    """Paths of all values below a table or list of parsed JSON or TOML."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))
