"""BibTeX entry of a method."""

from __future__ import annotations

from xaibench.leaderboard.manifest import Manifest


def bibtex_entry(manifest: Manifest) -> str:
    """Return a BibTeX entry for a method; a citation that is not BibTeX becomes its note."""
    method = manifest.method
    if method.citation.lstrip().startswith("@"):
        return method.citation.strip() + "\n"
    key = "".join(letter for letter in method.name if letter.isalnum())
    fields = {
        "title": method.label,
        "author": " and ".join(method.authors),
        "note": method.citation,
        "howpublished": f"\\url{{{method.homepage}}}" if method.homepage else "",
        "year": manifest.submitted[:4],
    }
    body = ",\n".join(f"  {name} = {{{_bibtex_value(text)}}}" for name, text in fields.items() if text)
    return f"@misc{{{key},\n{body}\n}}\n"


def _bibtex_value(text: str) -> str:
    """Escape text so that it cannot end a BibTeX field."""
    return " ".join(text.split()).replace("{", "(").replace("}", ")") if not text.startswith("\\url") else text
