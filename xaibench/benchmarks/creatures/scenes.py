"""Scenes: a creature on a background with clutter, and their images.

Everything is integer arithmetic on random integers, so that an image is the same on every machine. Objects are painted
without blending: every pixel shows exactly one object. Removing a part therefore changes exactly the pixels where the
part is visible, and there shows what is behind.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xaibench.benchmarks.creatures.creatures import (
    BODY_PARTS,
    COLORS,
    HALF,
    Color,
    Ellipse,
    Look,
    Polygon,
    Pose,
    Shape,
    covers,
    draw_looks,
    grid,
    jitter,
)

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
