"""Photographs and what people marked in them: four public sets, the released one, and one's own folder."""
