"""The rendering of creature scenes again, pixel by pixel, with the fractions of Python."""

from fractions import Fraction
from math import floor

from xaibench.benchmarks.creatures.creatures import BODY_PARTS, CLUTTER, HALF, Ellipse


def center(number, size):
    """The coordinate of the center of a pixel: the image reaches from -HALF to HALF."""
    return floor(Fraction(2 * number + 1, size) * HALF) - HALF


def inside(shape, x, y):
    return any(inside_piece(piece, x, y) for piece in shape)


def inside_piece(piece, x, y):
    if isinstance(piece, Ellipse):
        return Fraction(x - piece.x, piece.width) ** 2 + Fraction(y - piece.y, piece.height) ** 2 <= 1
    corners = piece.corners
    for (x0, y0), (x1, y1) in zip(corners, corners[1:] + corners[:1], strict=True):
        # The inside is to the right of an edge, for someone who walks along it clockwise on the screen (y down).
        if (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) < 0:
            return False
    return True


def own(pose, x, y):
    """The frame of an object: shifted, turned back, and enlarged by the inverse of its scale."""
    tangent = Fraction(pose.turn, 64)
    cosine = floor(4096 * (1 - tangent**2) / (1 + tangent**2))
    sine = floor(4096 * 2 * tangent / (1 + tangent**2))
    across, down = x - pose.x, y - pose.y
    scale = Fraction(pose.scale, 1024)
    own_x = floor(Fraction(cosine * across + sine * down, 4096) / scale)
    own_y = floor(Fraction(cosine * down - sine * across, 4096) / scale)
    return (-own_x if pose.mirrored else own_x), own_y


def shaded(color, y):
    light = max(190, min(310, 256 - floor(Fraction(y, 64))))
    return [min(255, floor(Fraction(channel * light, 256))) for channel in color]


def background(scene, x, y):
    right, down = Fraction(x + HALF, 2 * HALF), Fraction(y + HALF, 2 * HALF)
    color = [
        floor((a * (1 - right) + b * right) * (1 - down) + (c * (1 - right) + d * right) * down)
        for a, b, c, d in zip(*scene.corners, strict=True)
    ]
    for blob in scene.blobs:
        shape = blob.shape
        across = floor(Fraction((x - shape.x) * 1024, shape.width))
        down_ = floor(Fraction((y - shape.y) * 1024, shape.height))
        weight = floor(200 * max(Fraction(0), 1 - Fraction(across**2 + down_**2, 1024**2)))
        color = [c + floor(Fraction((b - c) * weight, 256)) for c, b in zip(color, blob.color, strict=True)]
    for object_ in scene.clutter:
        own_x, own_y = own(object_.pose, x, y)
        if inside(CLUTTER[object_.shape], own_x, own_y):
            color = shaded(object_.color, own_y)
    return color


def pixel(scene, size, row, column, without=()):
    """The color of a pixel before noise, and the part that is visible there (0 = none)."""
    x, y = center(column, size), center(row, size)
    own_x, own_y = own(scene.pose, x, y)
    # From the front to the back: the first part that covers the pixel is the one that is seen.
    for number in range(len(BODY_PARTS), 0, -1):
        look = scene.looks[number - 1]
        if number == scene.missing or number in without:
            continue
        if inside(BODY_PARTS[number - 1].shapes[look.shape], own_x - look.x, own_y - look.y):
            return shaded(look.color, own_y), number
    return background(scene, x, y), 0
