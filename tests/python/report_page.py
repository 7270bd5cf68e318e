"""Running the report and reading what it wrote."""

from html.parser import HTMLParser

from mhar.report import main


class Page(HTMLParser):
    """Tags with their attributes, the text, and tables as lists of rows."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.rows, self._cell = [], [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        self._cell = tag in ("td", "th")
        if self._cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        self.words.append(data)
        if self._cell:
            self.rows[-1][-1] += data

    def row(self, name):
        return next(row[1:] for row in self.rows if row and row[0] == name)

    @property
    def text(self):
        return " ".join(self.words)


def report(runs, out, *options):
    code = main([*map(str, runs), "--out", str(out), *options])
    return code, Page(out.read_text()) if code == 0 else None


def refused(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    message = capsys.readouterr().err
    assert code == 2
    assert message.count("\n") == 1 and message.startswith("mhar.report: "), message
    return message
