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
