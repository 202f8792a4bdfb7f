"""The creatures of the data sets ``parts/...``: parts, variants, classes, and the scenes in which they are painted.

A creature looks like a bird seen from the side. It has seven parts. Beak, wing, tail and feet decide the class, each by
one of two variants; a variant has a shape and a group of colors. Body, crest and eye vary at random and carry no
information.

The eight classes are the combinations of four variants with an even number of second variants. Every variant occurs in
four classes. Any three of the four parts determine the class, and no two do: a network must use at least three, and an
image without one part still has its class.

Coordinates of shapes are integers, so that every machine draws the same pixels. x points to the right, y down; half the
side of an image is :data:`HALF` units.

Everything in scenes is integer arithmetic on random integers, so that an image is the same on every machine. Objects
are painted without blending: every pixel shows exactly one object. Removing a part therefore changes exactly the pixels
where the part is visible, and there shows what is behind.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

#: Units of half the side of an image.
HALF = 8192

#: Coordinates of points, int64.
Points = NDArray[np.int64]


@dataclass(frozen=True)
class Ellipse:
    """An ellipse with axes along x and y.

    Attributes:
        x: Center.
        y: Center.
        width: Half-axis along x, at most ``2 * HALF``.
        height: Half-axis along y, at most ``2 * HALF``.
    """

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: Points, y: Points) -> NDArray[np.bool_]:
        """Return which points are inside, or on the boundary."""
        across, down = (x - self.x) * self.height, (y - self.y) * self.width
        inside: NDArray[np.bool_] = across * across + down * down <= (self.width * self.height) ** 2
        return inside


@dataclass(frozen=True)
class Polygon:
    """A convex polygon.

    Attributes:
        corners: At least three corners ``(x, y)``, clockwise as seen on the screen.
    """

    corners: tuple[tuple[int, int], ...]

    def contains(self, x: Points, y: Points) -> NDArray[np.bool_]:
        """Return which points are inside, or on the boundary."""
        inside = np.ones(x.shape, dtype=bool)
        for (x0, y0), (x1, y1) in pairwise((*self.corners, self.corners[0])):
            inside &= (x1 - x0) * (y - y0) >= (y1 - y0) * (x - x0)
        return inside


#: Convex pieces whose union is a shape.
Shape = Sequence[Ellipse | Polygon]


def covers(shape: Shape, x: Points, y: Points) -> NDArray[np.bool_]:
    """Return which points are in a shape."""
    inside = shape[0].contains(x, y)
    for piece in shape[1:]:
        inside |= piece.contains(x, y)
    return inside


def grid(size: int) -> tuple[Points, Points]:
    """Return the coordinates of the pixel centers of an image: x ``[1, size]`` and y ``[size, 1]``.

    Example:
        >>> x, y = grid(4)
        >>> x.tolist()
        [[-6144, -2048, 2048, 6144]]
    """
    places = (2 * np.arange(size, dtype=np.int64) + 1 - size) * HALF // size
    return places[None], places[:, None]


@dataclass(frozen=True)
class Pose:
    """Position, size, rotation and direction of an object.

    Attributes:
        x: Center of the object in the image.
        y: Center of the object in the image.
        scale: Size, times 1024.
        turn: Tangent of half the angle of rotation, times 64: 16 is a rotation by 28 degrees.
        mirrored: Whether left and right are exchanged.
    """

    x: int
    y: int
    scale: int
    turn: int
    mirrored: bool

    def own_coordinates(self, x: Points, y: Points) -> tuple[Points, Points]:
        """Return the coordinates of points of the image in the frame of the object, rounded down to integers."""
        # Cosine and sine are rational functions of the tangent of half the angle; here times 4096.
        tangent = 64
        whole = tangent * tangent + self.turn * self.turn
        cosine = 4096 * (tangent * tangent - self.turn * self.turn) // whole
        sine = 4096 * 2 * tangent * self.turn // whole
        across, down = x - self.x, y - self.y
        own_x = (cosine * across + sine * down) // (4 * self.scale)
        own_y = (cosine * down - sine * across) // (4 * self.scale)
        return (-own_x if self.mirrored else own_x), own_y


Color = tuple[int, int, int]

_WARM: tuple[Color, ...] = ((205, 45, 40), (232, 120, 30), (225, 75, 120), (240, 190, 40))
_COOL: tuple[Color, ...] = ((45, 75, 205), (40, 165, 205), (45, 150, 70), (110, 65, 185))
_NEUTRAL: tuple[Color, ...] = ((120, 85, 60), (165, 160, 155), (225, 220, 210), (75, 75, 80), (190, 160, 120))
#: All colors, of which clutter is drawn.
COLORS = _WARM + _COOL + _NEUTRAL


@dataclass(frozen=True)
class BodyPart:
    """A body part of a creature.

    Attributes:
        name: Its name.
        shapes: The shape of each variant, in the frame of the creature.
        colors: The group of colors of each variant.
        decides: Whether the class decides the variant. If not, shape and group of colors are drawn independently.
    """

    name: str
    shapes: tuple[Shape, ...]
    colors: tuple[tuple[Color, ...], ...]
    decides: bool = False


def _polygon(*corners: tuple[int, int]) -> Polygon:
    return Polygon(corners)


#: The body parts, in the order in which they are painted. Their numbers in label maps start at 1.
BODY_PARTS = (
    BodyPart(
        "tail",
        (
            [_polygon((-2300, -350), (-2300, 350), (-5600, 1900), (-5600, -1900))],
            [
                _polygon((-2300, -450), (-2300, 450), (-6000, -1150), (-6000, -1950)),
                _polygon((-2300, -450), (-2300, 450), (-6000, 1950), (-6000, 1150)),
            ],
        ),
        (_WARM, _COOL),
        True,
    ),
    BodyPart(
        "feet",
        (
            [
                _polygon((-1100, 1500), (-700, 1500), (-700, 3900), (-1100, 3900)),
                _polygon((-1100, 3500), (100, 3500), (100, 3900), (-1100, 3900)),
                _polygon((500, 1500), (900, 1500), (900, 3900), (500, 3900)),
                _polygon((500, 3500), (1700, 3500), (1700, 3900), (500, 3900)),
            ],
            [_polygon((-900, 1500), (-100, 3900), (-1700, 3900)), _polygon((800, 1500), (1600, 3900), (0, 3900))],
        ),
        (_WARM, _COOL),
        True,
    ),
    BodyPart(
        "crest",
        (
            [Ellipse(2500, -3500, 450, 1100), Ellipse(3300, -3500, 450, 1100)],
            [_polygon((3700, -2900), (1900, -2700), (1300, -4500))],
        ),
        (_WARM + _COOL,),
    ),
    BodyPart(
        "beak",
        ([_polygon((3700, -2450), (6600, -1800), (3700, -1400))], [Ellipse(4300, -1950, 750, 850)]),
        (_WARM, _COOL),
        True,
    ),
    BodyPart(
        "body",
        (
            [Ellipse(0, 0, 3000, 1950), Ellipse(2800, -2000, 1350, 1300)],
            [Ellipse(0, 100, 2800, 2150), Ellipse(2800, -2000, 1350, 1300), Ellipse(1900, -1000, 1100, 1100)],
        ),
        (_NEUTRAL,),
    ),
    BodyPart(
        "wing",
        ([Ellipse(-500, -150, 1900, 1050)], [_polygon((900, -1000), (900, 300), (-900, 1300), (-2600, -700))]),
        (_WARM, _COOL),
        True,
    ),
    BodyPart("eye", ([Ellipse(3150, -2350, 480, 480)], [Ellipse(3150, -2350, 650, 330)]), (_WARM + _COOL + _NEUTRAL,)),
)
#: Numbers of the parts that decide the class, as in label maps.
DECIDING = tuple(number for number, body_part in enumerate(BODY_PARTS, start=1) if body_part.decides)

#: The variants of the deciding parts of each class, in the order of :data:`DECIDING`.
CODES = tuple(code for code in product((0, 1), repeat=len(DECIDING)) if sum(code) % 2 == 0)
CLASSES = tuple(f"species {number}" for number in range(1, len(CODES) + 1))


@dataclass(frozen=True)
class Look:
    """How one body part of one creature looks.

    Attributes:
        shape: Number of its shape.
        color: Its color.
        x: Shift along x in the frame of the creature.
        y: Shift along y.
    """

    shape: int
    color: Color
    x: int
    y: int


def draw_looks(target: int, rng: np.random.Generator) -> tuple[Look, ...]:
    """Draw the looks of the parts of a creature of a class, in the order of :data:`BODY_PARTS`."""
    variants = dict(zip(DECIDING, CODES[target], strict=True))
    looks = []
    for number, body_part in enumerate(BODY_PARTS, start=1):
        shape, group = int(rng.integers(len(body_part.shapes))), int(rng.integers(len(body_part.colors)))
        if body_part.decides:
            shape = group = variants[number]
        colors = body_part.colors[group]
        color = jitter(colors[int(rng.integers(len(colors)))], 15, rng)
        x, y = rng.integers(-150, 151, 2).tolist()
        looks.append(Look(shape, color, x, y))
    return tuple(looks)


def jitter(color: Color, most: int, rng: np.random.Generator) -> Color:
    """Change each channel of a color by at most ``most``, within 0 and 255."""
    red, green, blue = (
        min(255, max(0, channel + change))
        for channel, change in zip(color, rng.integers(-most, most + 1, 3).tolist(), strict=True)
    )
    return red, green, blue


#: Shapes of clutter.
CLUTTER: tuple[Shape, ...] = (
    [Ellipse(0, 0, 1200, 1200)],
    [Ellipse(0, 0, 2000, 700)],
    [Polygon(((-1200, -1000), (1300, -700), (1000, 1100), (-900, 1200)))],
    [Polygon(((0, -1500), (1400, 1000), (-1400, 1000)))],
    [Polygon(((-2200, -250), (2200, -250), (2200, 250), (-2200, 250)))],
)
#: Largest change of a pixel by noise, in gray levels.
NOISE = 6


@dataclass(frozen=True)
class Blob:
    """A soft spot of the background; its color fades to the border, where it is gone."""

    shape: Ellipse
    color: Color


@dataclass(frozen=True)
class Clutter:
    """An object of the background, which is not a part."""

    shape: int
    color: Color
    pose: Pose


@dataclass(frozen=True)
class Scene:
    """Everything that decides an image.

    Attributes:
        looks: The look of each part.
        pose: The pose of the creature.
        missing: Number of the part that the creature lacks; 0 = none.
        corners: Colors of the background in the corners: top left, top right, bottom left, bottom right.
        blobs: Soft spots of the background.
        clutter: Objects of the background.
        noise_seed: Seed of the noise of the pixels.
    """

    looks: tuple[Look, ...]
    pose: Pose
    missing: int
    corners: tuple[Color, ...]
    blobs: tuple[Blob, ...]
    clutter: tuple[Clutter, ...]
    noise_seed: int


@dataclass(frozen=True)
class Layers:
    """The image of a scene, and the background behind each pixel.

    Attributes:
        image: ``[H, W, 3]`` uint8.
        parts: ``[H, W]`` uint8 number of the part that is visible in each pixel; 0 = background.
        behind: ``[H, W, 3]`` uint8: what a pixel shows if the part that is visible in it is removed; where no part is
            visible, the image.
    """

    image: NDArray[np.uint8]
    parts: NDArray[np.uint8]
    behind: NDArray[np.uint8]


def draw_scene(target: int, rng: np.random.Generator, *, missing: int = 0) -> Scene:
    """Draw a scene with a creature of a class.

    Args:
        target: The class.
        rng: Random generator.
        missing: Number of the part that the creature lacks; 0 = none.
    """
    looks = draw_looks(target, rng)
    pose = _draw_pose(rng, reach=1500, scales=(820, 1050), most_turn=12)
    corners = tuple(_draw_background_color(rng) for _ in range(4))
    blobs = tuple(_draw_blob(rng) for _ in range(int(rng.integers(2, 6))))
    clutter = tuple(_draw_clutter(rng) for _ in range(int(rng.integers(3, 8))))
    return Scene(looks, pose, missing, corners, blobs, clutter, int(rng.integers(2**62)))


def _draw_pose(rng: np.random.Generator, *, reach: int, scales: tuple[int, int], most_turn: int) -> Pose:
    x, y = rng.integers(-reach, reach + 1, 2).tolist()
    scale, turn = int(rng.integers(scales[0], scales[1] + 1)), int(rng.integers(-most_turn, most_turn + 1))
    return Pose(x, y, scale, turn, bool(rng.integers(2)))


def _draw_background_color(rng: np.random.Generator) -> Color:
    red, green, blue = rng.integers(60, 206, 3).tolist()
    gray = (red + green + blue) // 3
    return (red + gray) // 2, (green + gray) // 2, (blue + gray) // 2


def _draw_blob(rng: np.random.Generator) -> Blob:
    x, y = rng.integers(-HALF, HALF + 1, 2).tolist()
    width, height = rng.integers(2000, 6001, 2).tolist()
    return Blob(Ellipse(x, y, width, height), _draw_background_color(rng))


def _draw_clutter(rng: np.random.Generator) -> Clutter:
    shape, color = int(rng.integers(len(CLUTTER))), COLORS[int(rng.integers(len(COLORS)))]
    return Clutter(shape, jitter(color, 15, rng), _draw_pose(rng, reach=HALF, scales=(500, 1100), most_turn=64))


def render(scene: Scene, size: int, *, without: Collection[int] = ()) -> Layers:
    """Render a scene.

    Args:
        scene: The scene.
        size: Height and width in pixels.
        without: Numbers of further parts that are removed.

    Returns:
        The image with its layers.
    """
    x, y = grid(size)
    noise_rng = np.random.Generator(np.random.PCG64(scene.noise_seed))
    noise = noise_rng.integers(-NOISE, NOISE + 1, (size, size, 3), dtype=np.int16)
    image = _background(scene, x, y)
    behind, parts = image.copy(), np.zeros((size, size), dtype=np.uint8)
    own_x, own_y = scene.pose.own_coordinates(x, y)
    for number, (body_part, look) in enumerate(zip(BODY_PARTS, scene.looks, strict=True), start=1):
        if number == scene.missing or number in without:
            continue
        inside = covers(body_part.shapes[look.shape], own_x - look.x, own_y - look.y)
        behind[inside] = image[inside]
        image[inside] = _shade(look.color, own_y[inside])
        parts[inside] = number
    return Layers(_add_noise(image, noise), parts, _add_noise(behind, noise))


def _background(scene: Scene, x: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int16]:
    """Return the background ``[H, W, 3]``: a gradient between the corners, blobs, then clutter."""
    right, down = (x + HALF)[..., None], (y + HALF)[..., None]
    top_left, top_right, bottom_left, bottom_right = (np.array(color, np.int64) for color in scene.corners)
    whole = 2 * HALF
    top = top_left * (whole - right) + top_right * right
    bottom = bottom_left * (whole - right) + bottom_right * right
    image = (top * (whole - down) + bottom * down) // (whole * whole)
    for blob in scene.blobs:
        # The share of the blob's color, times 256, is 200 in its center, 0 at its border and outside.
        across, along = (x - blob.shape.x) * 1024 // blob.shape.width, (y - blob.shape.y) * 1024 // blob.shape.height
        softness = 200 * np.maximum(1024 * 1024 - (across * across + along * along), 0) // (1024 * 1024)
        image += (np.array(blob.color, np.int64) - image) * softness[..., None] // 256
    found = image.astype(np.int16)
    for object_ in scene.clutter:
        own_x, own_y = object_.pose.own_coordinates(x, y)
        inside = covers(CLUTTER[object_.shape], own_x, own_y)
        found[inside] = _shade(object_.color, own_y[inside])
    return found


def _shade(color: Color, y: NDArray[np.int64]) -> NDArray[np.int16]:
    """Return the color ``[..., 3]`` of an object at heights in its own frame; the top is brighter."""
    light = np.clip(256 - y // 64, 190, 310)
    shaded: NDArray[np.int16] = np.minimum(np.array(color, np.int64) * light[..., None] // 256, 255).astype(np.int16)
    return shaded


def _add_noise(image: NDArray[np.int16], noise: NDArray[np.int16]) -> NDArray[np.uint8]:
    noisy: NDArray[np.uint8] = np.clip(image + noise, 0, 255).astype(np.uint8)
    return noisy
