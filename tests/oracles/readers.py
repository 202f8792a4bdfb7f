"""Consensus of readers, pixel by pixel: is this pixel on the outline, is it inside, how many readers say so."""


def on_outline(row, column, points):
    """Whether a pixel lies on one of the straight lines between successive points, the last joined to the first."""
    for (r0, c0), (r1, c1) in zip(points, [*points[1:], points[0]], strict=True):
        along = (row - r0) * (c1 - c0) == (column - c0) * (r1 - r0)
        if along and min(r0, r1) <= row <= max(r0, r1) and min(c0, c1) <= column <= max(c0, c1):
            return True
    return False


def inside(row, column, points):
    """Whether a ray to the right crosses the outline an odd number of times (for pixels that are not on it)."""
    crossings = 0
    for (r0, c0), (r1, c1) in zip(points, [*points[1:], points[0]], strict=True):
        if (r0 <= row < r1) or (r1 <= row < r0):
            crossings += c0 + (row - r0) * (c1 - c0) / (r1 - r0) > column
    return crossings % 2 == 1


def marked(row, column, contours, contour_pixels):
    """``contours`` of one reader in one slice: ``(points, inclusion)``."""
    for points, inclusion in contours:
        if not inclusion and (on_outline(row, column, points) or inside(row, column, points)):
            return False
    for points, inclusion in contours:
        if inclusion:
            if on_outline(row, column, points):
                if contour_pixels:
                    return True
            elif inside(row, column, points):
                return True
    return False
