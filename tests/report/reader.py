"""Reading a page as a browser would, far enough to ask what is on it."""

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "link", "hr"}


class Reader(HTMLParser):
    """Collects elements and text, and checks that every element is closed where it should be."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self):
        return re.sub(r"\s+", " ", " ".join(self.text))


def assert_is_sound(page):
    """What refers to something refers to what is there, and everything drawn is described."""
    reader = Reader(page)
    ids = [attrs["id"] for _, attrs in reader.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    referred = {attrs["href"][1:] for attrs in reader.all("a") if "download" not in attrs}
    referred |= {attrs["aria-labelledby"] for _, attrs in reader.elements if "aria-labelledby" in attrs}
    assert referred | {attrs["for"] for attrs in reader.all("label") if "for" in attrs} <= set(ids)
    assert all(image["alt"] for image in reader.all("img"))
    assert all(attrs["aria-label"] for attrs in reader.all("svg") if attrs.get("role") == "img")
    assert all(attrs.get("scope") for attrs in reader.all("th"))


def assert_loads_nothing(page):
    """It is small, and nothing in it points outside."""
    reader = Reader(page)
    assert len(page.encode()) < 5_000_000
    for tag, attrs in reader.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            if attrs.get(name):
                own = r"data:text/csv;|data:application/x-tex;|tables/" if "download" in attrs else r"#"
                assert re.match(rf"{own}|data:image/(png|webp|jpeg);base64,", attrs[name]), (tag, attrs[name][:80])
    assert not re.search(r"url\((?!#)|@import|fetch\(|https?://", page)
    policy = next(meta["content"] for meta in reader.all("meta") if meta.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
