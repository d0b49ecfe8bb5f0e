"""Markup: the tags, attributes and texts of HTML, as a browser reads them."""

from html.parser import HTMLParser


class Markup(HTMLParser):
    """`tags` are pairs of a name and its attributes, `shown` the texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.styles, self.shown = [], [], [], []
        self._open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data):
        last = self._open[-1] if self._open else ""
        if last == "script":
            self.scripts[-1] += data
        elif last == "style":
            self.styles.append(data)
        else:
            self.shown.append(data)

    def all(self, tag):
        """The attributes of each element of a name."""
        return [attributes for name, attributes in self.tags if name == tag]
